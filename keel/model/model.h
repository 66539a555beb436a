// A decoder-only transformer built from ops: one formula for all families, options from ModelSpec.
//
// Training, log-prob passes, prefill and decode call the same forward on the same parameters. The
// head is apart: callers use ops::linear_log_prob or ops::linear_sample with head(), on the rows
// that need it. One thread drives a model; kernels use compute_pool().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "keel/ops/functions.h"
#include "keel/ops/parameter.h"
#include "keel/spec/model_spec.h"
#include "keel/spec/parameters.h"

namespace keel::model {

// Kernels want head_dim in multiples of 16. Other sizes are padded in memory: each half of a head
// (rotary pairs are half a head apart) is followed by zeros, which change no result.
int64_t padded_head_dim(const ModelSpec& spec);
inline int64_t padded_head_index(const ModelSpec& spec, int64_t i) {
  const int64_t half = spec.head_dim / 2;
  return i < half ? i : i - half + padded_head_dim(spec) / 2;
}

// Paged keys and values of all layers; block 0 is the null block. bf16 models store bf16.
class KvCache {
 public:
  KvCache(const ModelSpec& spec, ops::DType dtype, int32_t num_blocks);
  int32_t num_blocks() const { return num_blocks_; }
  ops::KvPool pool(int64_t layer) const { return pools_[static_cast<size_t>(layer)]; }
  static int64_t bytes_per_block(const ModelSpec& spec, ops::DType dtype);

 private:
  int32_t num_blocks_;
  std::vector<at::Tensor> storage_;
  std::vector<ops::KvPool> pools_;
};

// What one forward pass is about. cache: null in training (each layer makes a temporary pool).
struct ForwardContext {
  std::shared_ptr<const ops::AttentionPlan> plan;
  const KvCache* cache = nullptr;
};

class Model {
 public:
  // Parameters are zero; load.h fills them.
  Model(ModelSpec spec, ops::DType dtype);
  ~Model();

  const ModelSpec& spec() const { return spec_; }
  ops::DType dtype() const { return dtype_; }
  ops::AttentionShape attention_shape() const;
  bool round_bf16() const { return dtype_ == ops::DType::kBF16; }

  // The loop over blocks, written once. tokens: [T] -> hidden states after the final norm: [T,
  // hidden].
  at::Tensor forward(std::span<const int32_t> tokens, const ForwardContext& context);

  // Its pieces, for whoever must cut it elsewhere (activation checkpointing, pipeline stages).
  at::Tensor embed(std::span<const int32_t> tokens);
  at::Tensor block(int64_t layer, const at::Tensor& x, const ForwardContext& context);
  at::Tensor final_norm(const at::Tensor& x);
  void reserve_positions(int64_t count) { rope_.reserve(count); }

  // [vocab, hidden]; the embedding itself when tied.
  ops::Parameter& head();

  // Every parameter once, in the order of the forward pass.
  std::span<ops::Parameter* const> parameters() const { return parameters_; }
  // Where a parameter of the specification lives: `param` holds its rows from `row` on (fused
  // q|k|v, gate|up).
  struct Place {
    ops::Parameter* param = nullptr;
    int64_t row = 0;
  };
  Place place(const ParamSpec& spec) const;

  void make_trainable();
  // Number of times publish() ran; rollout salts its prefix cache with it.
  int64_t version() const { return version_; }
  // Call after the optimizer changed master weights.
  void publish();

 private:
  struct Layer;
  ops::Parameter* add(std::unique_ptr<ops::Parameter> parameter);
  void add_layer(int64_t index);
  at::Tensor mlp(const Layer& layer, const at::Tensor& x);

  ModelSpec spec_;
  ops::DType dtype_;
  ops::RopeTable rope_;
  std::vector<std::unique_ptr<ops::Parameter>> owned_;
  std::vector<ops::Parameter*> parameters_;
  std::vector<Layer> layers_;
  ops::Parameter* embedding_ = nullptr;
  ops::Parameter* final_norm_ = nullptr;
  ops::Parameter* head_ = nullptr;
  int64_t version_ = 0;
};

}  // namespace keel::model
