// Estimates how many tokens unfinished answers still need, from nothing but what is known so far:
// lengths of finished answers, how far the others are, which answers share a prompt.
//
// Log-lengths are normal: a common mean, a shift for each prompt, a rest for each answer. The three
// spreads are fitted online; an unfinished answer counts with the mean of its truncated
// distribution (EM for censored data), so early finishers do not bias the fit. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace keel::balance {

struct RolloutProgress {
  int32_t group = 0;      // prompt, >= 0
  int32_t generated = 0;  // tokens so far
  bool done = false;
};

class RolloutLengths {
 public:
  // max_new_tokens: where answers are cut, > 0.
  explicit RolloutLengths(int32_t max_new_tokens);

  // Fits the model to all answers of a rollout; num_groups > every group. Call it now and then: it
  // goes on from its last fit.
  void fit(std::span<const RolloutProgress> answers, int32_t num_groups);

  // Expected tokens still to come, > 0, of an answer of `group` with `generated` tokens.
  double remaining(int32_t group, int32_t generated) const;
  // Tokens still to come that it exceeds with probability p in (0, 0.5].
  double quantile(int32_t group, int32_t generated, double p) const;
  // Probability that it needs more than `more` tokens still.
  double exceeds(int32_t group, int32_t generated, double more) const;

 private:
  struct Sums {
    double value = 0, square = 0, variance = 0;
    int32_t count = 0;
  };
  void improve(std::span<const RolloutProgress> answers, std::span<const double> logs);

  double cap_;
  double log_cap_;
  double mean_;
  double between_ = 0.5;  // variance of the prompts' shifts
  double within_ = 0.5;   // variance of answers of one prompt
  std::vector<double> shift_;
  std::vector<double> shift_variance_;
};

}  // namespace keel::balance
