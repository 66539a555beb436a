// Replay of a rollout in events: data-parallel ranks decode in lockstep (or each by itself), slots
// are refilled from queues, graphs pad the batch, requests move between ranks. Between two events
// nothing changes but the length of the caches, so time leaps over the steps in between.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace keel::sim {

// What the fullest rank asks of one decode step.
struct StepLoad {
  double batch = 0;      // live sequences of the fullest rank, padded to a graph size
  double kv_tokens = 0;  // read by the rank that reads most, its imbalance over cores included
};

struct ReplayTask {
  std::vector<std::vector<int64_t>> queues;  // [ranks] response lengths in order of admission
  double prompt_tokens = 0;
  int64_t slots = 256;
  std::vector<int64_t> graph_sizes;  // empty: no padding
  int64_t kv_capacity_tokens = 0;    // of a rank; 0 = no limit
  bool split_by_count = false;       // attention dealt to cores by count, not by length
  int64_t cores = 24;
  bool rebalance = false;
  int64_t rebalance_every = 1000;  // steps
  std::function<double(const StepLoad&)> step_s;
  std::function<double(double tokens)> prefill_s;
  std::function<double(double kv_tokens)> move_s;  // requests with so many tokens of cache move
};

struct ReplayResult {
  double seconds = 0;
  double first_idle_share = 0;                     // of the rank that is done first
  double decode_s = 0, prefill_s = 0, move_s = 0;  // they sum to seconds
};

// Pure. Throws Error(kInvalid) if a sequence does not fit the capacity alone.
ReplayResult replay_rollout(const ReplayTask& task);

// Slowest core over the mean where sequences are dealt by count in order: parts of at least 512
// tokens where there are few sequences.
double by_count_imbalance(const std::vector<double>& kv_tokens, int64_t cores);

}  // namespace keel::sim
