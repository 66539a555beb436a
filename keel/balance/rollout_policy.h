// Keel's own long-tail scheduling: which request runs on which rank now. One policy object for the
// engine, the scheduler and the simulator; it sees progress and prompts, never lengths.
//
// Ranks in lockstep: every rank runs the same number of requests, one that fills a graph bucket,
// chosen to minimise (step time) x (steps that the longest answer or all work needs). Requests with
// the largest expected remainder run first; others wait, those that have started with their KV in
// place (divided rollout). Independent ranks: the requests expected to be longest run on few ranks
// in small batches (tail isolation, re-planned as estimates change). Requests move between ranks
// with their KV, at most max_moves in one plan, and only where that pays.
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
  bool lockstep = true;            // all ranks step with the fullest
  int64_t kv_capacity_tokens = 0;  // of one rank
  int32_t max_new_tokens = 0;
  int32_t max_moves = 64;  // in one plan
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
  struct Class {  // ranks with one batch size
    int32_t batch = 0;
    int32_t first_rank = 0;
    int32_t num_ranks = 0;
    std::vector<int32_t> requests;  // longest first
  };

  double step_ms(int32_t batch) const;
  void estimate(std::span<const RolloutRequest> requests);
  double longest_remaining() const;
  int32_t choose_batch() const;
  bool isolate(double target_ms, std::vector<Class>* classes) const;
  std::vector<Class> isolate_tail() const;
  void place(std::span<const RolloutRequest> requests, std::span<const Class> classes);

  RolloutShape shape_;
  RolloutLengths lengths_;
  RolloutPlan plan_;
  std::vector<RolloutProgress> progress_;
  std::vector<double> remaining_;   // [requests]
  std::vector<int32_t> by_length_;  // unfinished, longest expected remainder first
  std::vector<int32_t> class_of_rank_;
  std::vector<int32_t> class_of_request_;
};

// Empty if every unfinished request is planned or queued once, ranks and batches are in range and
// moves are bounded; otherwise what is wrong.
std::string validate(const RolloutShape& shape, std::span<const RolloutRequest> requests,
                     const RolloutPlan& plan);

}  // namespace keel::balance
