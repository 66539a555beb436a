#include "keel/sched/published_drafter.h"

#include <algorithm>

namespace keel::sched {

void PublishedDrafter::append(int32_t token) {
  int32_t e = text_.find(match_, token);
  while (e == SuffixAutomaton::kNone && match_ != SuffixAutomaton::kRoot) {
    match_ = text_.link(match_);
    e = text_.find(match_, token);
  }
  match_ = e == SuffixAutomaton::kNone ? SuffixAutomaton::kRoot : text_.edge(e).target;
  end_ = text_.extend(end_, token, static_cast<int32_t>(tokens_.size()));
  tokens_.push_back(token);
}

std::span<const int32_t> PublishedDrafter::draft(int32_t max_tokens) const {
  const auto last = static_cast<int32_t>(tokens_.size()) - 1;
  int32_t at = match_;
  while (at != SuffixAutomaton::kRoot && text_.link(at) != SuffixAutomaton::kRoot &&
         max_tokens > last - text_.min_end(at)) {
    at = text_.link(at);
  }
  if (at == SuffixAutomaton::kRoot) return {};
  const int32_t first = text_.min_end(at) + 1;
  return std::span(tokens_).subspan(first, std::clamp(last + 1 - first, 0, max_tokens));
}

}  // namespace keel::sched
