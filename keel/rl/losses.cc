#include "keel/rl/losses.h"

#include <algorithm>
#include <cmath>

#include "keel/base/error.h"

namespace keel::rl {
namespace {

constexpr double kMaxLogRatio = 20;     // keeps exp finite; verl's bound
constexpr double kMaxLogRatioSeq = 10;  // the sequence ratio's, above only

// A token's loss, its derivative and what happened to it.
struct TokenLoss {
  double loss = 0;
  double grad = 0;
  bool clipped = false;
  bool clipped_lower = false;
};

// log_ratio inside its clamp has slope 1, outside 0.
TokenLoss clipped_ratio(const PolicyLossConfig& c, double ratio, double d_ratio, double advantage,
                        double dual) {
  const double bounded = std::clamp(ratio, 1 - c.clip_low, 1 + c.clip_high);
  const bool inside = ratio >= 1 - c.clip_low && ratio <= 1 + c.clip_high;
  const double plain = -advantage * ratio, clipped = -advantage * bounded;
  TokenLoss t;
  t.clipped = clipped > plain;
  t.loss = std::max(plain, clipped);
  t.grad = t.clipped && !inside ? 0.0 : -advantage * d_ratio;
  const double floor = -advantage * dual;
  if (advantage < 0 && dual > 0 && t.loss > floor) {
    t.clipped_lower = true;
    t.loss = floor;
    t.grad = 0;
  }
  return t;
}

TokenLoss ppo_token(const PolicyLossConfig& c, double log_prob, double old, double advantage) {
  const double log_ratio = log_prob - old;
  const double ratio = std::exp(std::clamp(log_ratio, -kMaxLogRatio, kMaxLogRatio));
  const double slope = std::abs(log_ratio) <= kMaxLogRatio ? ratio : 0.0;
  return clipped_ratio(c, ratio, slope, advantage, c.clip_c);
}

TokenLoss gspo_token(const PolicyLossConfig& c, double mean_log_ratio, double advantage) {
  const double ratio = std::exp(std::min(mean_log_ratio, kMaxLogRatioSeq));
  const double slope = mean_log_ratio <= kMaxLogRatioSeq ? ratio : 0.0;
  return clipped_ratio(c, ratio, slope, advantage, 0.0);
}

TokenLoss cispo_token(const PolicyLossConfig& c, double log_prob, double old, double advantage) {
  const double ratio = std::exp(std::clamp(log_prob - old, -kMaxLogRatio, kMaxLogRatio));
  const double weight = std::clamp(ratio, 1 - c.clip_low, 1 + c.clip_high);
  TokenLoss t;
  t.loss = -advantage * weight * log_prob;
  t.grad = -advantage * weight;
  t.clipped = ratio != weight;
  return t;
}

double mean_log_ratio(const Ragged& tokens, int64_t s, std::span<const double> log_prob,
                      std::span<const double> old, std::span<const uint8_t> mask) {
  double sum = 0, count = 0;
  for (auto i = static_cast<size_t>(tokens.begin(s)); i < static_cast<size_t>(tokens.end(s)); ++i) {
    if (!mask[i]) continue;
    sum += log_prob[i] - old[i];
    ++count;
  }
  return sum / std::max(count, 1.0);
}

}  // namespace

std::vector<double> aggregation_weights(LossAggregation aggregation, const LossCounts& counts,
                                        const Ragged& tokens, std::span<const uint8_t> mask) {
  std::vector<double> weights(static_cast<size_t>(tokens.num_tokens()), 0.0);
  for (int64_t s = 0; s < tokens.num_sequences(); ++s) {
    double own = 0;
    for (int64_t i = tokens.begin(s); i < tokens.end(s); ++i)
      own += mask[static_cast<size_t>(i)] != 0;
    if (own == 0) continue;
    double weight = 0;
    switch (aggregation) {
      case LossAggregation::kTokenMean:
        weight = 1 / counts.num_tokens;
        break;
      case LossAggregation::kSeqMeanTokenSum:
        weight = 1 / counts.num_sequences;
        break;
      case LossAggregation::kSeqMeanTokenMean:
        weight = 1 / (counts.num_sequences * own);
        break;
      case LossAggregation::kSeqMeanTokenSumNorm:
        weight = 1 / counts.scale;
        break;
    }
    for (int64_t i = tokens.begin(s); i < tokens.end(s); ++i) {
      if (mask[static_cast<size_t>(i)]) weights[static_cast<size_t>(i)] = weight;
    }
  }
  return weights;
}

PolicyLossResult policy_loss(const PolicyLossConfig& config, const LossCounts& counts,
                             const Ragged& tokens, std::span<const double> log_prob,
                             std::span<const double> old_log_prob,
                             std::span<const double> advantage, std::span<const uint8_t> mask,
                             std::span<const double> weight, std::span<double> grad) {
  const bool gspo = config.loss == PolicyLoss::kGspo;
  const auto share = aggregation_weights(
      gspo ? LossAggregation::kSeqMeanTokenMean : config.aggregation, counts, tokens, mask);
  PolicyLossResult result;
  std::fill(grad.begin(), grad.end(), 0.0);
  for (int64_t s = 0; s < tokens.num_sequences(); ++s) {
    const double mean = gspo ? mean_log_ratio(tokens, s, log_prob, old_log_prob, mask) : 0.0;
    for (auto i = static_cast<size_t>(tokens.begin(s)); i < static_cast<size_t>(tokens.end(s));
         ++i) {
      if (!mask[i]) continue;
      TokenLoss t;
      switch (config.loss) {
        case PolicyLoss::kPpoClip:
          t = ppo_token(config, log_prob[i], old_log_prob[i], advantage[i]);
          break;
        case PolicyLoss::kGspo:
          t = gspo_token(config, mean, advantage[i]);
          break;
        case PolicyLoss::kCispo:
          t = cispo_token(config, log_prob[i], old_log_prob[i], advantage[i]);
          break;
      }
      const double factor = weight.empty() ? share[i] : share[i] * weight[i];
      result.loss += factor * t.loss;
      grad[i] = factor * t.grad;
      result.num_clipped += t.clipped;
      result.num_clipped_lower += t.clipped_lower;
      const double log_ratio = log_prob[i] - old_log_prob[i];
      result.sum_kl -= gspo ? log_ratio : std::clamp(log_ratio, -kMaxLogRatio, kMaxLogRatio);
    }
  }
  return result;
}

KlValue kl_value(KlEstimator estimator, bool straight_through, double log_prob,
                 double ref_log_prob) {
  const double d = log_prob - ref_log_prob;
  KlValue v;
  switch (estimator) {
    case KlEstimator::kK1:
      v = {d, 1};
      break;
    case KlEstimator::kAbs:
      v = {std::abs(d), d > 0 ? 1.0 : d < 0 ? -1.0 : 0.0};
      break;
    case KlEstimator::kK2:
      v = {0.5 * d * d, d};
      break;
    case KlEstimator::kK3: {
      const double x = std::clamp(-d, -kMaxLogRatio, kMaxLogRatio);
      const double raw = std::exp(x) - x - 1;
      v.value = std::clamp(raw, -10.0, 10.0);
      v.grad = std::abs(d) <= kMaxLogRatio && raw <= 10 ? 1 - std::exp(x) : 0;
      break;
    }
  }
  if (straight_through) v.grad = d;
  return v;
}

double add_aggregated(LossAggregation aggregation, const LossCounts& counts, const Ragged& tokens,
                      std::span<const double> value, std::span<const double> d_value,
                      std::span<const uint8_t> mask, double coef, std::span<double> grad) {
  const auto weights = aggregation_weights(aggregation, counts, tokens, mask);
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!mask[i]) continue;
    sum += weights[i] * value[i];
    grad[i] += coef * weights[i] * d_value[i];
  }
  return sum;
}

}  // namespace keel::rl
