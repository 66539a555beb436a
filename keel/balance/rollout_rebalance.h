// The published rollout rebalance: which requests move between data-parallel ranks that decode in
// lockstep. Queued requests go first (no KV to move); running ones move only if that lowers the
// bucket that the fullest rank imposes on all. Pure; agrees task by task with the original.
//
// After cann-recipes-train v0.1.0, rollout_rebalance.py (calc_balancing_tasks).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "keel/base/json.h"

namespace keel::balance {

struct RolloutRankState {
  int32_t running = 0;
  int32_t waiting = 0;
  double block_usage = 0;  // 0..1, of the KV pool
};

struct RolloutTask {
  int32_t from_rank = 0;
  int32_t to_rank = 0;
  int32_t count = 0;      // the last so many of running, then waiting
  bool needs_kv = false;  // running requests move with their KV
  bool operator==(const RolloutTask&) const = default;
};

struct RolloutLimits {
  std::vector<int32_t> buckets;  // batch sizes of compiled graphs, ascending
  int32_t max_running = 0;       // of one rank
};

// The smallest bucket >= batch; batch itself beyond the largest.
int32_t rollout_bucket(std::span<const int32_t> buckets, int32_t batch);

// Throws Error(kInvalid): no ranks, no buckets or not ascending, negative counts, usage outside
// [0, 1].
std::vector<RolloutTask> published_rebalance(std::span<const RolloutRankState> ranks,
                                             const RolloutLimits& limits);

// Empty if the tasks keep every request, nobody both gives and takes, only ranks with a queue give
// without KV, KV moves only when no queue is left, and receivers stay within their estimated room;
// otherwise what is wrong.
std::string validate(std::span<const RolloutRankState> ranks, const RolloutLimits& limits,
                     std::span<const RolloutTask> tasks);

// A line of rollout_rebalance_states.jsonl -> result lines (id, mode, plan, score, ratio, us).
// now_us: a clock. score: the largest bucket after the moves.
std::vector<OrderedJson> run_rollout_rebalance_case(const OrderedJson& row, double (*now_us)());

}  // namespace keel::balance
