// Advantages of sampled answers. Inputs are one reward a sequence (the sum of its token rewards);
// an advantage is one number a sequence, spread over its trained tokens by the caller. Double
// precision, order fixed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace keel::rl {

enum class AdvantageEstimator {
  kGrpo,    // (r - mean) / (std + eps) within the group; Shao et al., 2024 (arXiv 2402.03300)
  kDrGrpo,  // r - mean; Liu et al., 2025 (arXiv 2503.20783)
  kRloo,    // r - mean of the others; Ahmadian et al., 2024 (arXiv 2402.14740)
  kReinforcePlusPlusBaseline,  // r - mean, then whitened over all trained tokens; Hu, 2025 (arXiv
                               // 2501.03262)
};

struct AdvantageConfig {
  AdvantageEstimator estimator = AdvantageEstimator::kGrpo;
  double epsilon = 1e-6;  // added to the standard deviation (kGrpo)
};

// rewards, groups: one entry a sequence; equal group ids belong together (any order).
// num_tokens: trained tokens of each sequence (weights of the whitening).
// A group of one keeps its reward under kGrpo, kDrGrpo and kRloo (there is nothing to compare
// with).
std::vector<double> compute_advantages(const AdvantageConfig& config,
                                       std::span<const double> rewards,
                                       std::span<const int64_t> groups,
                                       std::span<const int64_t> num_tokens);

// Share of groups (of two or more) whose rewards are all equal: they give no gradient.
double zero_signal_share(std::span<const double> rewards, std::span<const int64_t> groups);

}  // namespace keel::rl
