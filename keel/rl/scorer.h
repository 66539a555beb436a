// Scores of answers: a built-in rule (chosen or by data_source) or a user's Python function.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "keel/data/dataset.h"
#include "keel/reward/python_reward.h"
#include "keel/rl/train_config.h"

namespace keel::rl {

struct Answer {
  const Row* row = nullptr;
  std::string text;              // decoded, without special tokens
  std::span<const int32_t> ids;  // of the answer
};

struct Score {
  double value = 0;
  Json extra;         // further keys of a user's result, or null
  std::string error;  // why `value` is a default, or ""
};

class Scorer {
 public:
  // Checks the rule's name, or starts the workers. log_path: where user code's prints go.
  Scorer(const RewardSection& config, const std::string& log_path);

  // Throws Error if a row has no rule (no reward.rule, data_source unknown).
  void check(const Dataset& data) const;
  std::vector<Score> score(std::span<const Answer> answers);
  // Answers whose user code failed so far (exceptions, timeouts, crashes).
  int64_t num_failed() const { return num_failed_; }

 private:
  std::string rule_of(const Row& row) const;
  std::string rule_;
  std::unique_ptr<PythonReward> python_;
  int64_t num_failed_ = 0;
};

}  // namespace keel::rl
