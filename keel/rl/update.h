// One update of the policy from a mini-batch of experiences: losses, gradients, optimizer.
#pragma once

#include <span>
#include <vector>

#include "keel/parallel/group.h"
#include "keel/rl/experience.h"
#include "keel/rl/losses.h"
#include "keel/rl/train_config.h"
#include "keel/train/optimizer.h"

namespace keel::rl {

// Sums over the mini-batch's trained tokens on all ranks.
struct UpdateStats {
  double num_tokens = 0;
  double pg_loss = 0, kl_loss = 0;  // aggregated, without coefficients
  double num_clipped = 0, num_clipped_lower = 0, sum_kl = 0, sum_entropy = 0;
  // Probabilities of the sampled tokens, recorded while sampling against this forward pass;
  // meaningful only before the first update of a step. diff_max is the largest over ranks.
  double diff_sum = 0, diff_square = 0, diff_max = 0;
  double grad_norm = 0;
  bool skipped = false;
  int64_t num_rows = 0;  // computed on this rank
};

struct UpdateConfig {
  PolicyLossConfig policy;
  PassOptions pass;
  double loss_scale = 1;  // divisor of seq-mean-token-sum-norm
  double entropy_coef = 0;
  double kl_coef = 0;  // 0: no KL term; needs Experience::ref_log_prob
  KlEstimator kl = KlEstimator::kK3;
};

UpdateConfig update_config(const TrainConfig& config);

// Adds the gradients of the whole mini-batch to the parameters of every rank: each computes those
// of its `batch`, then they are summed in rank order. The optimizer's part of the result is unset.
UpdateStats add_gradients(model::Model& model, parallel::Group& group,
                          std::span<const Experience* const> batch, const UpdateConfig& config);

// add_gradients, one optimizer step, publish.
UpdateStats update_policy(model::Model& model, train::AdamW& optimizer, parallel::Group& group,
                          std::span<const Experience* const> batch, const UpdateConfig& config,
                          double lr_factor);

}  // namespace keel::rl
