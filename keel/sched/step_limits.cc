#include "keel/sched/step_limits.h"

#include <algorithm>

#include "keel/base/error.h"

namespace keel::sched {

int32_t padded_rows(std::span<const int32_t> buckets, int32_t rows) {
  const auto found = std::lower_bound(buckets.begin(), buckets.end(), rows);
  return found == buckets.end() ? rows : *found;
}

LockstepStep agree_on_step(std::span<const RankLoad> ranks, std::span<const int32_t> buckets,
                           int32_t max_rows) {
  KEEL_REQUIRE(!ranks.empty(), "[sched.lockstep] expected at least one rank, got none");
  KEEL_REQUIRE(max_rows > 0, "[sched.lockstep] expected max_rows > 0, got {}", max_rows);
  KEEL_REQUIRE(std::is_sorted(buckets.begin(), buckets.end()),
               "[sched.lockstep] expected ascending buckets, got {} in another order",
               buckets.size());
  LockstepStep step;
  int32_t running = 0;
  int64_t pending = 0;
  bool full = false, room = false;
  for (const auto& r : ranks) {
    running = std::max(running, r.running);
    pending = std::max(pending, r.pending_rows);
    full = full || r.running >= r.max_seqs;
    room = room || (r.waiting > 0 && r.running < r.max_seqs);
  }
  step.limits.admit = !(full && room);
  const auto wanted = static_cast<int32_t>(std::min<int64_t>(max_rows, int64_t{running} + pending));
  step.padded_rows = std::min(max_rows, padded_rows(buckets, running));
  for (const int32_t b : buckets) {
    if (b <= wanted) step.padded_rows = std::max(step.padded_rows, b);
  }
  // A prompt shorter than any bucket still has to be computed.
  if (pending > 0 && step.padded_rows <= running) {
    step.padded_rows = std::min(max_rows, padded_rows(buckets, wanted));
  }
  step.limits.max_rows = step.padded_rows;
  return step;
}

std::vector<int32_t> budget_drafts(std::span<const Draft> drafts, const VerifyCost& cost,
                                   int32_t max_rows) {
  std::vector<int32_t> taken(drafts.size(), 0);
  struct Candidate {
    float probability;
    int32_t draft;
    int32_t index;
  };
  std::vector<Candidate> candidates;
  for (size_t d = 0; d < drafts.size(); ++d) {
    for (size_t i = 0; i < drafts[d].probabilities.size(); ++i) {
      candidates.push_back(
          {drafts[d].probabilities[i], static_cast<int32_t>(d), static_cast<int32_t>(i)});
    }
  }
  std::stable_sort(
      candidates.begin(), candidates.end(),
      [](const Candidate& x, const Candidate& y) { return x.probability > y.probability; });
  double tokens = static_cast<double>(drafts.size());
  double step_us = cost.fixed_us + cost.row_us * tokens;
  for (const auto& c : candidates) {
    if (max_rows-- <= 0 || c.probability * step_us <= cost.row_us * tokens) break;
    tokens += c.probability;
    step_us += cost.row_us;
    taken[c.draft] = c.index + 1;  // a draft's probabilities fall, so what comes before is taken
  }
  return taken;
}

}  // namespace keel::sched
