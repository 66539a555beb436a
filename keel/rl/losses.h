// Policy losses and their gradients with respect to log-probabilities, in double precision, as pure
// functions of ragged arrays. A micro-batch passes the counts of the whole (global) batch, so
// contributions simply add up.
//
// Values where mask is 0 are never read: they are selected away, not multiplied by zero.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "keel/rl/sequences.h"

namespace keel::rl {

enum class PolicyLoss {
  kPpoClip,  // clipped ratio with separate bounds (DAPO's clip-higher) and dual clip (Ye et al.,
             // 2020)
  kGspo,     // sequence-level ratio, length-normalised; Zheng et al., 2025 (arXiv 2507.18071)
  kCispo,    // clipped, detached ratio as weight; MiniMax-M1, 2025 (arXiv 2506.13585)
};

// How per-token losses become one number.
enum class LossAggregation {
  kTokenMean,            // sum / trained tokens
  kSeqMeanTokenSum,      // mean over sequences of sums
  kSeqMeanTokenMean,     // mean over sequences of means
  kSeqMeanTokenSumNorm,  // sum / scale (a constant length); Dr.GRPO
};

struct LossCounts {
  double num_tokens = 0;     // trained tokens of the whole batch
  double num_sequences = 0;  // sequences of the whole batch that have trained tokens
  double scale = 1;          // kSeqMeanTokenSumNorm's divisor, e.g. the response length limit
};

struct PolicyLossConfig {
  PolicyLoss loss = PolicyLoss::kPpoClip;
  LossAggregation aggregation = LossAggregation::kTokenMean;
  double clip_low = 0.2;
  double clip_high = 0.2;
  double clip_c = 3.0;  // lower bound of the loss where the advantage is negative; kPpoClip only
};

// Sums over trained tokens; divide by the global number of tokens for the usual fractions.
struct PolicyLossResult {
  double loss = 0;  // this micro-batch's share of the aggregated loss
  double num_clipped = 0;
  double num_clipped_lower = 0;
  double sum_kl = 0;  // of old - new log-prob
};

// All arrays have tokens.num_tokens() entries; advantage has one a sequence. grad is overwritten
// with d loss / d log_prob (0 where masked). kGspo always aggregates as its paper does
// (kSeqMeanTokenMean).
PolicyLossResult policy_loss(const PolicyLossConfig& config, const LossCounts& counts,
                             const Ragged& tokens, std::span<const double> log_prob,
                             std::span<const double> old_log_prob,
                             std::span<const double> advantage, std::span<const uint8_t> mask,
                             std::span<const double> weight, std::span<double> grad);

// Estimators of KL(policy || reference) at sampled tokens (Schulman, 2020).
enum class KlEstimator {
  kK1,   // log p - log q
  kAbs,  // |log p - log q|
  kK2,   // half the square
  kK3,   // q/p - 1 - log(q/p), clamped as verl's low_var_kl
};

// Per-token value and d value / d log_prob. straight_through: the gradient of kK2 whatever the
// value.
struct KlValue {
  double value = 0;
  double grad = 0;
};
KlValue kl_value(KlEstimator estimator, bool straight_through, double log_prob,
                 double ref_log_prob);

// Adds coef * aggregate(value[t]) to the loss and coef * weight to grad[t] += d value * weight;
// returns the aggregated value without coef. Used for the KL and entropy terms: d_value[t] is d
// value / d x.
double add_aggregated(LossAggregation aggregation, const LossCounts& counts, const Ragged& tokens,
                      std::span<const double> value, std::span<const double> d_value,
                      std::span<const uint8_t> mask, double coef, std::span<double> grad);

// What each token's loss is multiplied by under an aggregation (0 where masked).
std::vector<double> aggregation_weights(LossAggregation aggregation, const LossCounts& counts,
                                        const Ragged& tokens, std::span<const uint8_t> mask);

}  // namespace keel::rl
