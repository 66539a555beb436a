#include "keel/balance/rollout_rebalance.h"

#include <algorithm>
#include <numeric>

#include "keel/base/error.h"

namespace keel::balance {
namespace {

struct Party {
  int32_t rank = 0;
  int32_t count = 0;  // may take or wants to give
  int32_t load = 0;   // running and assigned
  int32_t assigned = 0;
};

struct Parties {
  int32_t before = 0;  // largest bucket now
  int32_t target = 0;  // wanted
  std::vector<Party> queues, donors, receivers;
};

int32_t room_by_kv(const RolloutRankState& s) {
  return static_cast<int32_t>(s.running * (1 - s.block_usage) / s.block_usage);
}

Parties sort_out(std::span<const RolloutRankState> ranks, const RolloutLimits& limits) {
  Parties p;
  int64_t total = 0;
  for (const auto& s : ranks) {
    const int32_t count = s.running + s.waiting;
    total += count;
    p.before = std::max(p.before, rollout_bucket(limits.buckets, count));
  }
  const double average = static_cast<double>(total) / static_cast<double>(ranks.size());
  p.target = std::min({p.before, limits.buckets.back(), limits.max_running});
  for (const int32_t b : limits.buckets) {
    if (average <= b && b < p.target) {
      p.target = b;
      break;
    }
  }
  for (size_t r = 0; r < ranks.size(); ++r) {
    const auto& s = ranks[r];
    const auto rank = static_cast<int32_t>(r);
    if (s.waiting > 0) {
      p.queues.push_back({rank, s.waiting, 0, 0});
      continue;
    }
    if (s.block_usage > 0.8) continue;
    const int32_t room = p.target - s.running;
    if (room > 0) {
      const int32_t capacity = s.block_usage > 0 ? std::min(room, room_by_kv(s)) : room;
      p.receivers.push_back({rank, capacity, s.running, 0});
    } else if (room < 0) {
      p.donors.push_back({rank, -room, 0, 0});
    }
  }
  return p;
}

// One queued request at a time to the emptiest receiver with room. True if no queue is left.
bool move_queues(Parties& p, std::vector<RolloutTask>& tasks) {
  int64_t left = 0;
  for (const auto& q : p.queues) left += q.count;
  for (; left > 0; --left) {
    Party* emptiest = nullptr;
    for (auto& r : p.receivers) {
      if (r.assigned < r.count && (emptiest == nullptr || r.load < emptiest->load)) emptiest = &r;
    }
    if (emptiest == nullptr) break;
    ++emptiest->assigned;
    ++emptiest->load;
  }
  size_t from = 0;
  for (auto& r : p.receivers) {
    for (int32_t wanted = r.assigned; wanted > 0;) {
      auto& queue = p.queues[from];
      const int32_t count = std::min(wanted, queue.count);
      if (count > 0) tasks.push_back({queue.rank, r.rank, count, false});
      wanted -= count;
      queue.count -= count;
      r.count -= count;
      if (queue.count == 0) ++from;
    }
  }
  return left == 0;
}

// Each pass gives the roomiest receivers to the donors in turn. A donor that has nothing left
// keeps its turn until the pass ends: so does the original.
void move_running(Parties& p, std::vector<RolloutTask>& tasks) {
  while (!p.donors.empty() && !p.receivers.empty()) {
    auto by_room = p.receivers;
    std::stable_sort(by_room.begin(), by_room.end(),
                     [](const Party& x, const Party& y) { return x.count > y.count; });
    size_t turn = 0;
    for (auto& r : by_room) {
      auto& donor = p.donors[turn];
      const int32_t count = std::min(donor.count, r.count);
      if (count <= 0) continue;
      tasks.push_back({donor.rank, r.rank, count, true});
      donor.count -= count;
      r.count -= count;
      turn = (turn + 1) % p.donors.size();
    }
    const auto empty = [](const Party& x) { return x.count == 0; };
    std::erase_if(p.donors, empty);
    std::erase_if(by_room, empty);
    std::sort(by_room.begin(), by_room.end(),
              [](const Party& x, const Party& y) { return x.rank < y.rank; });
    p.receivers = std::move(by_room);
  }
}

void check_input(std::span<const RolloutRankState> ranks, const RolloutLimits& limits) {
  KEEL_REQUIRE(!ranks.empty(), "[balance.rollout] expected at least one rank, got none");
  KEEL_REQUIRE(!limits.buckets.empty() && limits.buckets.front() > 0 &&
                   std::is_sorted(limits.buckets.begin(), limits.buckets.end()),
               "[balance.rollout] expected buckets > 0 in ascending order, got {} of them",
               limits.buckets.size());
  KEEL_REQUIRE(limits.max_running > 0, "[balance.rollout] expected max_running > 0, got {}",
               limits.max_running);
  for (size_t r = 0; r < ranks.size(); ++r) {
    const auto& s = ranks[r];
    KEEL_REQUIRE(s.running >= 0 && s.waiting >= 0 && s.block_usage >= 0 && s.block_usage <= 1,
                 "[balance.rollout] expected counts >= 0 and a usage in [0, 1], got {}, {}, {} on "
                 "rank {}",
                 s.running, s.waiting, s.block_usage, r);
  }
}

int32_t largest_bucket_after(std::span<const RolloutRankState> ranks, const RolloutLimits& limits,
                             std::span<const RolloutTask> tasks) {
  std::vector<int32_t> counts;
  for (const auto& s : ranks) counts.push_back(s.running + s.waiting);
  for (const auto& t : tasks) {
    counts[t.from_rank] -= t.count;
    counts[t.to_rank] += t.count;
  }
  int32_t largest = 0;
  for (const int32_t c : counts) largest = std::max(largest, rollout_bucket(limits.buckets, c));
  return largest;
}

}  // namespace

int32_t rollout_bucket(std::span<const int32_t> buckets, int32_t batch) {
  const auto found = std::lower_bound(buckets.begin(), buckets.end(), batch);
  return found == buckets.end() ? batch : *found;
}

std::vector<RolloutTask> published_rebalance(std::span<const RolloutRankState> ranks,
                                             const RolloutLimits& limits) {
  check_input(ranks, limits);
  std::vector<RolloutTask> tasks;
  auto parties = sort_out(ranks, limits);
  if (!move_queues(parties, tasks) || parties.target >= parties.before) return tasks;
  move_running(parties, tasks);
  return tasks;
}

std::string validate(std::span<const RolloutRankState> ranks, const RolloutLimits& limits,
                     std::span<const RolloutTask> tasks) {
  const auto n = static_cast<int32_t>(ranks.size());
  std::vector<int32_t> waiting, running, taken(n, 0), given(n, 0);
  for (const auto& s : ranks) {
    waiting.push_back(s.waiting);
    running.push_back(s.running);
  }
  int64_t queued = std::accumulate(waiting.begin(), waiting.end(), int64_t{0});
  for (const auto& t : tasks) {
    if (t.from_rank < 0 || t.from_rank >= n || t.to_rank < 0 || t.to_rank >= n || t.count <= 0) {
      return fmt::format("task {} -> {} of {} requests", t.from_rank, t.to_rank, t.count);
    }
    auto& pool = t.needs_kv ? running : waiting;
    if (pool[t.from_rank] < t.count) return fmt::format("rank {} has too few", t.from_rank);
    if (!t.needs_kv) queued -= t.count;
    if (t.needs_kv && queued > 0) return "KV moves although requests are queued";
    pool[t.from_rank] -= t.count;
    given[t.from_rank] += t.count;
    taken[t.to_rank] += t.count;
  }
  for (int32_t r = 0; r < n; ++r) {
    if (taken[r] == 0) continue;
    const auto& s = ranks[r];
    if (given[r] > 0) return fmt::format("rank {} gives and takes", r);
    if (s.waiting > 0 || s.block_usage > 0.8) return fmt::format("rank {} may not take", r);
    if (s.block_usage > 0 && taken[r] > room_by_kv(s)) return fmt::format("rank {} overflows", r);
    if (s.running + taken[r] > limits.max_running) return fmt::format("rank {} is too full", r);
  }
  return "";
}

std::vector<OrderedJson> run_rollout_rebalance_case(const OrderedJson& row, double (*now_us)()) {
  std::vector<RolloutRankState> ranks;
  RolloutLimits limits;
  try {
    for (const auto& s : row.at("states")) ranks.push_back({s.at(0), s.at(1), s.at(2)});
    limits = {row.at("buckets").get<std::vector<int32_t>>(), row.at("max_num_running")};
  } catch (const OrderedJson::exception& e) {
    throw_invalid("[rollout_rebalance] expected states, buckets and max_num_running, got {}",
                  e.what());
  }
  const double start = now_us();
  const auto tasks = published_rebalance(ranks, limits);
  const double us = now_us() - start;
  OrderedJson plan = OrderedJson::array();
  for (const auto& t : tasks) plan.push_back({t.from_rank, t.to_rank, t.count, t.needs_kv});
  const int32_t score = largest_bucket_after(ranks, limits, tasks);
  OrderedJson out = {
      {"id", row.value("id", "")}, {"mode", "published"}, {"plan", plan}, {"score", score}};
  if (row.contains("bucket_after")) out["ratio"] = score / row["bucket_after"].get<double>();
  out["us"] = us;
  return {out};
}

}  // namespace keel::balance
