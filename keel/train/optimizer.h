// AdamW over a model's parameters with global-norm clipping. Steps with non-finite gradients are
// skipped and counted; nothing changes then. Matrices are decayed, vectors (norms, biases) are not.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "keel/ops/parameter.h"

namespace keel::train {

struct AdamWConfig {
  double lr = 1e-6;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  double max_grad_norm = 1.0;  // 0 = no clipping
};

struct UpdateResult {
  double grad_norm = 0;  // before clipping
  bool skipped = false;  // the norm was not finite
};

class AdamW {
 public:
  // Parameters must be trainable and outlive this.
  AdamW(std::span<ops::Parameter* const> parameters, AdamWConfig config);

  // Applies the accumulated gradients, multiplied by grad_scale, with learning rate config.lr *
  // lr_factor, and clears them. The caller publishes the parameters afterwards
  // (model::Model::publish).
  UpdateResult step(double lr_factor, double grad_scale = 1.0);
  void zero_grad();
  // Moments and counters as at the start, with another configuration (a new stage of training).
  void reset(const AdamWConfig& config);

  int64_t num_updates() const { return num_updates_; }
  int64_t num_skipped() const { return num_skipped_; }

  // For checkpoints: first and second moments, in the order of the parameters.
  struct Slot {
    ops::Parameter* parameter = nullptr;
    at::Tensor m, v;
  };
  std::span<Slot> slots() { return slots_; }
  void set_counters(int64_t num_updates, int64_t num_skipped);

 private:
  AdamWConfig config_;
  std::vector<Slot> slots_;
  int64_t num_updates_ = 0;
  int64_t num_skipped_ = 0;
};

}  // namespace keel::train
