// Runs the planners of keel/balance on case files; the formats are in docs/algorithms.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "keel/base/json.h"

namespace keel::cli {

// One case in, one line for each mode out: id, mode, plan, score, ratio (where the case tells what
// to compare with), us (the planner alone, fastest of up to three runs) and what the kind adds.
using BalanceRunner = std::function<std::vector<OrderedJson>(const OrderedJson&)>;

// The kinds' names with commas between them.
std::string balance_kinds();

// kind: a name or the beginning of exactly one; '-' is read as '_'. Throws Error(kInvalid) if there
// is none. The runner throws Error(kInvalid) on a case that lacks a field.
BalanceRunner balance_runner(const std::string& kind);

}  // namespace keel::cli
