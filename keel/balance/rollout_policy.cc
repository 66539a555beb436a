#include "keel/balance/rollout_policy.h"

#include <algorithm>
#include <cmath>

#include "keel/base/error.h"

namespace keel::balance {
namespace {

// A plausible remainder is one that so many exceed.
constexpr double kPlausible = 0.3;
// Requests may wait if fewer than so many of them are expected to end last because of it.
constexpr double kLateRisk = 0.02;
constexpr size_t kTailCandidates = 256;
// A running request gives way to one whose plausible remainder is this much larger.
constexpr double kGiveWay = 1.2;

}  // namespace

RolloutPolicy::RolloutPolicy(const RolloutShape& shape)
    : shape_(shape), lengths_(shape.max_new_tokens) {
  KEEL_REQUIRE(shape.ranks >= 1, "[balance.rollout.ranks] expected >= 1, got {}", shape.ranks);
  KEEL_REQUIRE(shape.max_running >= 1, "[balance.rollout.max_running] expected >= 1, got {}",
               shape.max_running);
  KEEL_REQUIRE(!shape.buckets.empty() && shape.buckets.front() >= 1 &&
                   std::is_sorted(shape.buckets.begin(), shape.buckets.end()) &&
                   shape.buckets.back() >= shape.max_running,
               "[balance.rollout.buckets] expected ascending batch sizes up to max_running {}",
               shape.max_running);
  KEEL_REQUIRE(shape.step_ms.size() == shape.buckets.size() && shape.step_ms.front() > 0,
               "[balance.rollout.step_ms] expected a time > 0 for each of {} buckets, got {}",
               shape.buckets.size(), shape.step_ms.size());
  KEEL_REQUIRE(shape.max_moves >= 0 && shape.max_move_tokens >= 0,
               "[balance.rollout.max_moves] expected moves and tokens >= 0, got {}, {}",
               shape.max_moves, shape.max_move_tokens);
}

void RolloutPolicy::estimate(std::span<const RolloutRequest> requests) {
  int32_t num_groups = 0;
  progress_.clear();
  for (const auto& r : requests) {
    KEEL_REQUIRE(r.group >= 0 && r.generated >= 0 && r.rank < shape_.ranks,
                 "[balance.rollout] expected groups and tokens >= 0 and ranks < {}, got {}, {}, {}",
                 shape_.ranks, r.group, r.generated, r.rank);
    num_groups = std::max(num_groups, r.group + 1);
    progress_.push_back({r.group, r.generated, r.done});
  }
  lengths_.fit(progress_, num_groups);
  remaining_.assign(requests.size(), 0);
  plausible_.assign(requests.size(), 0);
  turn_.assign(requests.size(), 0);
  by_length_.clear();
  std::vector<int32_t> queued(num_groups, 0);
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto& r = requests[i];
    if (r.done) continue;
    remaining_[i] = lengths_.remaining(r.group, r.generated);
    plausible_[i] = lengths_.quantile(r.group, r.generated, kPlausible);
    if (r.generated == 0 && !r.active) turn_[i] = ++queued[r.group];
    by_length_.push_back(static_cast<int32_t>(i));
  }
  sort_by_length(by_length_);
}

void RolloutPolicy::sort_by_length(std::vector<int32_t>& requests) const {
  std::stable_sort(requests.begin(), requests.end(), [&](int32_t x, int32_t y) {
    return plausible_[x] != plausible_[y] ? plausible_[x] > plausible_[y] : turn_[x] < turn_[y];
  });
}

// Steps that the longest of all will probably need: as many as half a request is expected to pass.
double RolloutPolicy::longest_remaining() const {
  const size_t n = std::min(by_length_.size(), kTailCandidates);
  double low = 0, high = shape_.max_new_tokens;
  for (int i = 0; i < 16; ++i) {
    const double middle = (low + high) / 2;
    double expected = 0;
    for (size_t k = 0; k < n; ++k) {
      const auto& p = progress_[by_length_[k]];
      expected += lengths_.exceeds(p.group, p.generated, middle);
    }
    (expected > 0.5 ? low : high) = middle;
  }
  return high;
}

// Whether all but the first `slots` requests may wait until so many of those have finished: hardly
// any of them would then end after the longest does now.
bool RolloutPolicy::can_wait(size_t slots, double longest) const {
  const size_t waiting = by_length_.size() - slots;
  if (waiting > slots) return false;
  std::vector<double> ends;
  for (size_t k = 0; k < slots; ++k) ends.push_back(remaining_[by_length_[k]]);
  std::nth_element(ends.begin(), ends.begin() + static_cast<int64_t>(waiting - 1), ends.end());
  const double slack = longest - ends[waiting - 1];
  if (slack <= 0) return false;
  double late = 0;
  for (size_t k = slots; k < by_length_.size(); ++k) {
    const auto& p = progress_[by_length_[k]];
    late += lengths_.exceeds(p.group, p.generated, slack);
    if (late > kLateRisk) return false;
  }
  return true;
}

int32_t RolloutPolicy::level_batch() const {
  const auto live = static_cast<int32_t>((by_length_.size() + shape_.ranks - 1) / shape_.ranks);
  int32_t batch = std::min(live, shape_.max_running);
  if (live > shape_.max_running) return batch;
  const double longest = longest_remaining();
  for (size_t b = shape_.buckets.size(); b-- > 0;) {
    if (shape_.buckets[b] >= batch) continue;
    const auto slots = static_cast<size_t>(shape_.buckets[b]) * shape_.ranks;
    if (!can_wait(slots, longest)) break;
    batch = shape_.buckets[b];
  }
  return batch;
}

const RolloutPlan& RolloutPolicy::plan(std::span<const RolloutRequest> requests) {
  plan_.rank.resize(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) plan_.rank[i] = requests[i].rank;
  plan_.active.assign(requests.size(), 0);
  plan_.order.clear();
  plan_.batch.assign(shape_.ranks, 0);
  estimate(requests);
  if (by_length_.empty()) return plan_;
  place(requests, level_batch());
  sort_by_length(plan_.order);
  return plan_;
}

RolloutPolicy::Loads RolloutPolicy::loads_of(std::span<const RolloutRequest> requests) const {
  Loads loads{std::vector<int32_t>(shape_.ranks, 0), std::vector<int64_t>(shape_.ranks, 0),
              shape_.max_moves, shape_.max_move_tokens};
  for (const auto& r : requests) {
    if (!r.done && r.rank >= 0) loads.tokens[r.rank] += r.prompt_tokens + r.generated;
  }
  return loads;
}

bool RolloutPolicy::fits(const Loads& loads, int32_t rank, int32_t limit,
                         const RolloutRequest& r) const {
  if (loads.count[rank] >= limit) return false;
  if (r.rank == rank || loads.count[rank] == 0) return true;
  return loads.tokens[rank] + r.prompt_tokens + r.generated <= shape_.kv_capacity_tokens;
}

void RolloutPolicy::put(Loads& loads, int32_t request, const RolloutRequest& r, int32_t rank) {
  ++loads.count[rank];
  plan_.rank[request] = rank;
  plan_.active[request] = 1;
  if (r.rank == rank) return;
  const int64_t tokens = r.prompt_tokens + r.generated;
  loads.tokens[rank] += tokens;
  if (r.rank < 0) return;
  loads.tokens[r.rank] -= tokens;
  --loads.moves;
  loads.move_tokens -= tokens;
}

void RolloutPolicy::place(std::span<const RolloutRequest> requests, int32_t batch) {
  // Up to the bucket costs nothing: nobody moves within it.
  const auto bucket = std::lower_bound(shape_.buckets.begin(), shape_.buckets.end(), batch);
  const int32_t limit = std::min(*bucket, shape_.max_running);
  plan_.batch.assign(shape_.ranks, limit);
  const auto slots = static_cast<size_t>(batch) * shape_.ranks;
  auto chosen = by_length_;
  if (chosen.size() > slots && batch == shape_.max_running) {  // a queue
    const auto key = [&](int32_t i) { return plausible_[i] * (requests[i].active ? kGiveWay : 1); };
    std::stable_sort(chosen.begin(), chosen.end(), [&](int32_t x, int32_t y) {
      return key(x) != key(y) ? key(x) > key(y) : turn_[x] < turn_[y];
    });
  }
  const size_t active = std::min(slots, chosen.size());
  plan_.order.assign(chosen.begin() + static_cast<int64_t>(active), chosen.end());
  chosen.resize(active);
  auto loads = loads_of(requests);
  std::vector<int32_t> others;
  for (const int32_t i : chosen) {
    const auto& r = requests[i];
    if (r.rank >= 0 && loads.count[r.rank] < limit) {
      put(loads, i, r, r.rank);
    } else {
      others.push_back(i);
    }
  }
  for (const int32_t i : others) {
    const auto& r = requests[i];
    const bool stuck = r.rank >= 0 && !loads.may_move(r.prompt_tokens + r.generated);
    int32_t to = -1;
    for (int32_t x = 0; x < shape_.ranks && !stuck; ++x) {
      if (!fits(loads, x, limit, r)) continue;
      if (to < 0 || std::pair(loads.count[x], loads.tokens[x]) <
                        std::pair(loads.count[to], loads.tokens[to])) {
        to = x;
      }
    }
    to < 0 ? plan_.order.push_back(i) : put(loads, i, r, to);
  }
}

int32_t RolloutPolicy::next(std::span<const RolloutRequest> requests, int32_t rank,
                            int64_t free_tokens) {
  for (size_t k = 0; k < plan_.order.size(); ++k) {
    const int32_t q = plan_.order[k];
    const auto& r = requests[q];
    if (r.rank >= 0 && r.rank != rank) continue;
    if (r.rank < 0 && r.prompt_tokens + r.generated > free_tokens) continue;
    plan_.order.erase(plan_.order.begin() + static_cast<int64_t>(k));
    return q;
  }
  return -1;
}

std::string validate(const RolloutShape& shape, std::span<const RolloutRequest> requests,
                     const RolloutPlan& plan) {
  if (plan.rank.size() != requests.size() || plan.active.size() != requests.size()) {
    return "the plan is for another number of requests";
  }
  std::vector<int32_t> count(shape.ranks, 0), seen(requests.size(), 0);
  for (const int32_t q : plan.order) ++seen[q];
  int32_t moves = 0;
  int64_t move_tokens = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto& r = requests[i];
    if (seen[i] + plan.active[i] != (r.done ? 0 : 1)) {
      return fmt::format("request {} is planned {} times", i, seen[i] + plan.active[i]);
    }
    if (!plan.active[i]) {
      if (plan.rank[i] != r.rank) return fmt::format("request {} moves but does not run", i);
      continue;
    }
    if (plan.rank[i] < 0 || plan.rank[i] >= shape.ranks)
      return fmt::format("request {} is on rank {}", i, plan.rank[i]);
    if (++count[plan.rank[i]] > plan.batch[plan.rank[i]]) {
      return fmt::format("rank {} runs more than {}", plan.rank[i], plan.batch[plan.rank[i]]);
    }
    const bool moved = r.rank >= 0 && r.rank != plan.rank[i];
    moves += moved;
    if (moved) move_tokens += r.prompt_tokens + r.generated;
  }
  if (moves > shape.max_moves) return fmt::format("{} moves, {} allowed", moves, shape.max_moves);
  if (move_tokens > shape.max_move_tokens) {
    return fmt::format("{} tokens move, {} allowed", move_tokens, shape.max_move_tokens);
  }
  for (const int32_t b : plan.batch) {
    if (b < 0 || b > shape.max_running) return fmt::format("a batch of {}", b);
  }
  return "";
}

}  // namespace keel::balance
