// Keel's own long-tail scheduling: which request runs on which rank now. One policy object for the
// engine, the scheduler and the simulator; it sees progress and prompts, never lengths.
//
// Order: an answer of every prompt first (it tells about the others), then the largest plausible
// remainder first; siblings that finish early push a prompt back, ones that go on push it forward.
// While there is a queue, a running request gives way, with its KV in place, to one that plausibly
// needs more still: so all that may become long are on their way as early as slots allow.
// Placement: counts are level, so that no rank's graph bucket is larger than it must be; and where
// the next smaller bucket would do but for a few requests that surely end before the longest, these
// wait until others have finished. The same for ranks in lockstep, where the fullest decides, and
// for ranks on their own, where makespan does. Requests move with their KV, at most max_moves and
// max_move_tokens in one plan, and only out of a bucket that must become smaller.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "keel/balance/rollout_lengths.h"

namespace keel::balance {

struct RolloutShape {
  int32_t ranks = 1;
  int32_t max_running = 1;         // of one rank
  std::vector<int32_t> buckets;    // ascending batch sizes; the last >= max_running
  std::vector<double> step_ms;     // of each bucket, ascending
  int64_t kv_capacity_tokens = 0;  // of one rank
  int32_t max_new_tokens = 0;
  int32_t max_moves = 64;               // in one plan
  int64_t max_move_tokens = 1'000'000;  // of KV, in one plan
};

struct RolloutRequest {
  int32_t group = 0;
  int32_t prompt_tokens = 0;
  int32_t generated = 0;
  int32_t rank = -1;    // where its KV is, -1 = nowhere
  bool active = false;  // generating now
  bool done = false;
};

struct RolloutPlan {
  std::vector<int32_t> rank;    // [requests] where it is or goes, -1 = stays queued
  std::vector<uint8_t> active;  // [requests] generates until the next plan
  std::vector<int32_t> order;   // the others, most urgent first: they take slots that become free
  std::vector<int32_t> batch;   // [ranks] slots to fill
};

class RolloutPolicy {
 public:
  // Throws Error(kInvalid) naming the field that is out of range.
  explicit RolloutPolicy(const RolloutShape& shape);

  // requests: always the same ones in the same order, with their state now.
  const RolloutPlan& plan(std::span<const RolloutRequest> requests);

  // The request that takes a free slot of `rank` until the next plan: one that waits nowhere or on
  // this rank and whose KV fits in free_tokens; -1 = none.
  int32_t next(std::span<const RolloutRequest> requests, int32_t rank, int64_t free_tokens);

 private:
  void estimate(std::span<const RolloutRequest> requests);
  double longest_remaining() const;
  int32_t level_batch() const;
  bool can_wait(size_t slots, double longest) const;
  void place(std::span<const RolloutRequest> requests, int32_t batch);
  void sort_by_length(std::vector<int32_t>& requests) const;

  // What a plan in the making has put where.
  struct Loads {
    std::vector<int32_t> count;   // [ranks] active
    std::vector<int64_t> tokens;  // [ranks] of KV
    int32_t moves = 0;            // left
    int64_t move_tokens = 0;      // left
    bool may_move(int64_t kv_tokens) const { return moves > 0 && kv_tokens <= move_tokens; }
  };
  Loads loads_of(std::span<const RolloutRequest> requests) const;
  bool fits(const Loads& loads, int32_t rank, int32_t limit, const RolloutRequest& r) const;
  void put(Loads& loads, int32_t request, const RolloutRequest& r, int32_t rank);

  RolloutShape shape_;
  RolloutLengths lengths_;
  RolloutPlan plan_;
  std::vector<RolloutProgress> progress_;
  std::vector<double> remaining_;   // [requests] expected
  std::vector<double> plausible_;   // [requests] exceeded by three in ten
  std::vector<int32_t> turn_;       // [requests] among the queued ones of its prompt
  std::vector<int32_t> by_length_;  // unfinished, largest plausible remainder first
};

// Empty if every unfinished request is planned or queued once, ranks and batches are in range and
// moves are bounded; otherwise what is wrong.
std::string validate(const RolloutShape& shape, std::span<const RolloutRequest> requests,
                     const RolloutPlan& plan);

}  // namespace keel::balance
