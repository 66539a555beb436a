// Reads a run's metrics and says in plain words what looks wrong, why, and what to do.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "keel/observe/step_record.h"

namespace keel {

enum class Severity { kInfo, kWarning, kProblem };
const char* to_string(Severity severity);  // "info", "warning", "problem"

struct RunFinding {
  std::string id;  // stable word for scripts: "zero_std_groups", "truncation", ...
  Severity severity = Severity::kWarning;
  std::string title;   // what is seen, with the number
  std::string cause;   // why it matters or where it comes from
  std::string advice;  // what to change
};

// Pure. records: ascending steps. Worst findings first, otherwise in the order of the rules. Rules
// about the present look at the mean of the last 10 steps; rules about drift compare it with the
// first 10 and need at least 20 steps; a metric that is not recorded gives no finding.
//
// Thresholds: rollout/train difference mean 0.005 and 0.01 (verl's FAQ); the others are working
// values of our own.
std::vector<RunFinding> diagnose(std::span<const StepRecord> records);

}  // namespace keel
