// The numbers that stand at the top of a report and in its JSON form.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "keel/base/json.h"
#include "keel/observe/page/run_data.h"

namespace keel::page {

enum class Better { kHigher, kLower, kNeither };

struct Headline {
  std::string label, metric;
  double first = 0, last = 0;
  std::optional<double> best;  // absent where neither direction is better
  int64_t best_step = 0;
};
// Of the metrics that the run has, validation included.
std::vector<Headline> headlines(const RunData& run);

// Whether the reward trained on is not simply the score.
bool has_penalties(const RunData& run);

// nullopt: not measured. true: the largest rollout/train difference of the whole run is 0.
std::optional<bool> is_exact(const RunData& run);

OrderedJson summary_json(const RunData& run);

// 0.8125 -> "0.813", 1234.5 -> "1,234", 1e-05 -> "1.00e-05".
std::string short_number(double value);

}  // namespace keel::page
