// Replays fixed texts of one group: each sibling in turn drafts, verifies and appends, until all
// texts are written. What tests, benchmarks and `keel sched suffix_groups` measure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "keel/base/json.h"
#include "keel/sched/drafter.h"

namespace keel::sched {

struct DraftGroupCase {
  std::vector<int32_t> prompt;
  std::vector<std::vector<int32_t>> siblings;
};

struct DraftReplay {
  struct Step {
    int32_t sibling = 0;
    std::vector<int32_t> tokens;
    std::vector<int32_t> parents;
  };
  std::vector<Step> steps;
  int64_t tokens = 0;
  int64_t drafted = 0;
  int64_t accepted = 0;

  double tokens_per_step() const {
    return static_cast<double>(tokens) / static_cast<double>(steps.size());
  }
  double accept_rate() const {
    return static_cast<double>(accepted) / static_cast<double>(std::max<int64_t>(1, drafted));
  }
};

// share: one automaton for all siblings, else one each.
DraftReplay replay_drafts(const DraftGroupCase& group, const DraftLimits& limits, bool share);
// The published rule (own text only) with drafts of max_tokens.
DraftReplay replay_published_drafts(const DraftGroupCase& group, int32_t max_tokens);

// A case of suffix_groups.jsonl; throws Error(kInvalid) naming a missing or wrong field.
DraftGroupCase draft_group_case(const OrderedJson& row);

}  // namespace keel::sched
