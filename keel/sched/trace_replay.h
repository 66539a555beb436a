// Replays a trace of requests with forced outputs through the Scheduler and counts what the prefix
// cache saved. What tests, benchmarks and `keel sched kv_traces` measure.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "keel/base/json.h"
#include "keel/sched/scheduler.h"

namespace keel::sched {

struct TraceRequest {
  int64_t arrival = 0;  // scheduler step
  int32_t after = -1;   // also not before `gap` steps after this request ended
  int64_t gap = 0;
  std::vector<int32_t> prompt;
  std::vector<int32_t> output;
};

struct TraceCase {
  int32_t token_budget = 0;
  int32_t max_seqs = 0;
  std::vector<TraceRequest> requests;
};

struct TraceReplay {
  // Rows of one request in one step. cached > 0: an admission that found so many tokens.
  struct Rows {
    int32_t request = 0;
    int32_t first = 0;  // position
    int32_t count = 0;
  };
  struct Step {
    int64_t step = 0;
    std::vector<Rows> rows;
  };
  std::vector<Step> steps;
  std::vector<int32_t> first_hits;  // [requests] cached tokens at the first admission, -1 = refused
  int64_t hit_tokens = 0;           // of all admissions
  int64_t num_steps = 0;
  double plan_us = 0;  // spent in plan() and commit(), by the clock that the caller passes
  SchedulerStats stats;

  int64_t first_hit_tokens() const;
};

// now_us: a clock for plan_us, or null. Requests larger than the pool are refused.
TraceReplay replay_trace(const TraceCase& trace, int32_t pool_blocks, double (*now_us)() = nullptr);

// A case of kv_traces.jsonl; throws Error(kInvalid) naming what is missing or wrong.
TraceCase trace_case(const OrderedJson& row);

}  // namespace keel::sched
