#include "keel/balance/rollout_policy.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "keel/base/error.h"

namespace keel::balance {
namespace {

// A running request keeps its place unless another's expected remainder is this much larger.
constexpr double kStay = 1.15;
constexpr int32_t kTailCandidates = 256;

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
  KEEL_REQUIRE(shape.max_moves >= 0, "[balance.rollout.max_moves] expected >= 0, got {}",
               shape.max_moves);
}

double RolloutPolicy::step_ms(int32_t batch) const {
  const auto found = std::lower_bound(shape_.buckets.begin(), shape_.buckets.end(), batch);
  return shape_
      .step_ms[std::min<size_t>(found - shape_.buckets.begin(), shape_.step_ms.size() - 1)];
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
  by_length_.clear();
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].done) continue;
    remaining_[i] = lengths_.remaining(requests[i].group, requests[i].generated);
    by_length_.push_back(static_cast<int32_t>(i));
  }
  const auto key = [&](int32_t i) { return remaining_[i] * (requests[i].active ? kStay : 1); };
  std::stable_sort(by_length_.begin(), by_length_.end(),
                   [&](int32_t x, int32_t y) { return key(x) > key(y); });
}

// Steps that the longest of all will probably need: as many as half a request is expected to pass.
double RolloutPolicy::longest_remaining() const {
  const size_t n = std::min<size_t>(by_length_.size(), kTailCandidates);
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

int32_t RolloutPolicy::choose_batch() const {
  double work = 0;
  for (const int32_t i : by_length_) work += remaining_[i];
  work /= shape_.ranks;
  const double longest = longest_remaining();
  const auto live = static_cast<int32_t>((by_length_.size() + shape_.ranks - 1) / shape_.ranks);
  int32_t best = shape_.max_running;
  double best_ms = 0;
  for (const int32_t bucket : shape_.buckets) {
    const int32_t batch = std::min(bucket, shape_.max_running);
    const double ms = step_ms(batch) * std::max(longest, work / std::min(batch, live));
    if (best_ms == 0 || ms < best_ms) {
      best_ms = ms;
      best = batch;
    }
    if (bucket >= live) break;
  }
  return best;
}

const RolloutPlan& RolloutPolicy::plan(std::span<const RolloutRequest> requests) {
  plan_.rank.resize(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) plan_.rank[i] = requests[i].rank;
  plan_.active.assign(requests.size(), 0);
  plan_.order.clear();
  plan_.batch.assign(shape_.ranks, 0);
  class_of_rank_.assign(shape_.ranks, 0);
  class_of_request_.assign(requests.size(), 0);
  estimate(requests);
  if (by_length_.empty()) return plan_;
  if (shape_.lockstep) {
    Class all{choose_batch(), 0, shape_.ranks, by_length_};
    place(requests, {&all, 1});
  } else {
    const auto classes = isolate_tail();
    place(requests, classes);
  }
  return plan_;
}

// For a target time, each rank takes the longest of what is left and the largest batch in which
// that one still makes it; its slots are filled one after the other with what fits.
bool RolloutPolicy::isolate(double target_ms, std::vector<Class>* classes) const {
  classes->clear();
  std::vector<int32_t> left = by_length_, rest;
  for (int32_t rank = 0; rank < shape_.ranks && !left.empty(); ++rank) {
    int32_t batch = 0;
    for (size_t b = shape_.buckets.size(); b-- > 0 && batch == 0;) {
      if (remaining_[left.front()] * shape_.step_ms[b] <= target_ms) batch = shape_.buckets[b];
    }
    if (batch == 0) return false;
    batch = std::min(batch, shape_.max_running);
    if (classes->empty() || classes->back().batch != batch) {
      classes->push_back({batch, rank, 0, {}});
    }
    auto& c = classes->back();
    ++c.num_ranks;
    std::vector<double> room(batch, target_ms / step_ms(batch));  // a heap: the roomiest first
    rest.clear();
    for (const int32_t i : left) {
      if (room.front() < remaining_[i]) {
        rest.push_back(i);
        continue;
      }
      std::pop_heap(room.begin(), room.end());
      room.back() -= remaining_[i];
      std::push_heap(room.begin(), room.end());
      c.requests.push_back(i);
    }
    left.swap(rest);
  }
  return left.empty();
}

std::vector<RolloutPolicy::Class> RolloutPolicy::isolate_tail() const {
  std::vector<Class> best, tried;
  double low = 0, high = 0;
  for (const int32_t i : by_length_) high += remaining_[i] * shape_.step_ms.back();
  for (int i = 0; i < 30 && high > low * 1.001; ++i) {
    // Geometric at first: the sum of all is far above.
    const double middle = low == 0 ? high / 4 : (low + high) / 2;
    if (isolate(middle, &tried)) {
      high = middle;
      best.swap(tried);
    } else {
      low = middle;
    }
  }
  if (best.empty()) isolate(high * 1.001, &best);
  const int32_t used = best.empty() ? 0 : best.back().first_rank + best.back().num_ranks;
  if (used < shape_.ranks) best.back().num_ranks += shape_.ranks - used;  // nobody idles
  return best;
}

// Which of a class's requests run where: those in place stay, others go to the emptiest rank.
void RolloutPolicy::place(std::span<const RolloutRequest> requests,
                          std::span<const Class> classes) {
  std::vector<int32_t> count(shape_.ranks, 0);
  std::vector<int64_t> tokens(shape_.ranks, 0);
  for (const auto& r : requests) {
    if (!r.done && r.rank >= 0) tokens[r.rank] += r.prompt_tokens + r.generated;
  }
  int32_t moves = shape_.max_moves;
  for (size_t k = 0; k < classes.size(); ++k) {
    const auto& c = classes[k];
    const int32_t end = c.first_rank + c.num_ranks;
    for (int32_t r = c.first_rank; r < end; ++r) {
      class_of_rank_[r] = static_cast<int32_t>(k);
      plan_.batch[r] = c.batch;
    }
    const auto slots = static_cast<size_t>(c.batch) * c.num_ranks;
    const size_t chosen = std::min(slots, c.requests.size());
    // Even shares first, so that nobody has to move where counts are level already.
    const auto share = static_cast<int32_t>((chosen + c.num_ranks - 1) / c.num_ranks);
    std::vector<int32_t> movers;
    for (size_t i = 0; i < c.requests.size(); ++i) {
      const int32_t q = c.requests[i];
      const auto& r = requests[q];
      class_of_request_[q] = static_cast<int32_t>(k);
      if (i >= chosen) {
        plan_.order.push_back(q);
      } else if (r.rank >= c.first_rank && r.rank < end && count[r.rank] < share) {
        ++count[r.rank];
        plan_.active[q] = 1;
      } else {
        movers.push_back(q);
      }
    }
    for (const int32_t q : movers) {
      const auto& r = requests[q];
      const int64_t need = r.prompt_tokens + r.generated;
      int32_t to = -1;
      for (int32_t x = c.first_rank; x < end; ++x) {
        if (count[x] >= c.batch) continue;
        if (count[x] > 0 && tokens[x] + need > shape_.kv_capacity_tokens) continue;
        if (to < 0 || std::pair(count[x], tokens[x]) < std::pair(count[to], tokens[to])) to = x;
      }
      const bool started = r.rank >= 0;
      if (to < 0 || (started && to != r.rank && moves == 0)) {
        plan_.order.push_back(q);
        continue;
      }
      if (started && to != r.rank) {
        --moves;
        tokens[r.rank] -= need;
      }
      if (to != r.rank) tokens[to] += need;
      ++count[to];
      plan_.rank[q] = to;
      plan_.active[q] = 1;
    }
  }
  std::stable_sort(plan_.order.begin(), plan_.order.end(),
                   [&](int32_t x, int32_t y) { return remaining_[x] > remaining_[y]; });
}

int32_t RolloutPolicy::next(std::span<const RolloutRequest> requests, int32_t rank,
                            int64_t free_tokens) {
  for (const bool own_class : {true, false}) {
    for (size_t k = 0; k < plan_.order.size(); ++k) {
      const int32_t q = plan_.order[k];
      const auto& r = requests[q];
      if (own_class && class_of_request_[q] != class_of_rank_[rank]) continue;
      if (r.rank >= 0 && r.rank != rank) continue;
      if (r.rank < 0 && r.prompt_tokens + r.generated > free_tokens) continue;
      plan_.order.erase(plan_.order.begin() + static_cast<int64_t>(k));
      return q;
    }
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
    moves += r.rank >= 0 && r.rank != plan.rank[i];
  }
  if (moves > shape.max_moves) return fmt::format("{} moves, {} allowed", moves, shape.max_moves);
  for (const int32_t b : plan.batch) {
    if (b < 0 || b > shape.max_running) return fmt::format("a batch of {}", b);
  }
  return "";
}

}  // namespace keel::balance
