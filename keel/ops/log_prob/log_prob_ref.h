// Scalar f64 reference of the head, for tests.
#pragma once

#include <cstdint>
#include <vector>

namespace keel::ops {

struct LogProbRef {
  double log_prob = 0;
  double entropy = 0;
  double lse = 0;
  std::vector<double> probs;  // [vocab], 0 for ids that are not kept
};

// logits: [vocab] before scaling.  kept: ascending ids, empty = all.
LogProbRef log_prob_ref(const std::vector<double>& logits, int64_t target, double temperature,
                        const std::vector<int32_t>& kept);

// d (g * log_prob + h * entropy) / d logits.
std::vector<double> log_prob_grad_ref(const std::vector<double>& logits, int64_t target,
                                      double temperature, const std::vector<int32_t>& kept,
                                      double g, double h);

}  // namespace keel::ops
