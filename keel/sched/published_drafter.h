// The drafting rule of the Ascend recipe's suffix automaton (one request, its own text only), for
// comparison: longest earlier match, then shorter ones until the earliest occurrence has enough
// text after it. Agrees with it draft by draft.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "keel/sched/suffix_automaton.h"

namespace keel::sched {

class PublishedDrafter {
 public:
  void append(int32_t token);
  // Up to max_tokens tokens that followed the earliest occurrence; valid until append().
  std::span<const int32_t> draft(int32_t max_tokens) const;

 private:
  SuffixAutomaton text_;
  std::vector<int32_t> tokens_{-1};  // [1 + position]
  int32_t end_ = SuffixAutomaton::kRoot;
  int32_t match_ = SuffixAutomaton::kRoot;
};

}  // namespace keel::sched
