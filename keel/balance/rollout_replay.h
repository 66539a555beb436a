// Replays a rollout with known lengths under RolloutPolicy (which does not see them) and measures
// it: step times by bucket, KV limits, moves and pauses at their cost. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "keel/balance/rollout_policy.h"
#include "keel/base/json.h"

namespace keel::balance {

struct RolloutTrace {
  RolloutShape shape;
  bool lockstep = true;          // all ranks step with the fullest; else each by itself
  std::vector<int32_t> lengths;  // [prompts * answers_per_prompt]
  int32_t answers_per_prompt = 1;
  int32_t prompt_tokens = 0;
  double kv_ms_per_token = 0;  // to move
  double prefill_ms_per_token = 0;
  double sync_ms = 0;       // of every change of plan
  double move_ms = 0;       // of every change of plan that moves KV
  double check_ms = 0;      // ranks on their own plan so often,
  int32_t check_steps = 0;  // ranks in lockstep so often
};

struct RolloutEvent {
  enum class Kind : uint8_t { kStart, kPause, kMove, kDrop } kind = Kind::kStart;
  double at_ms = 0;
  int32_t request = 0;
  int32_t from = -1;
  int32_t to = -1;
};

struct RolloutResult {
  std::vector<RolloutEvent> events;
  double makespan_ms = 0;
  double tail_after_90 = 0;  // of the makespan
  double idle = 0;           // of ranks x makespan
  int64_t moved = 0;
  int64_t paused = 0;
  int64_t dropped = 0;  // KV lost, computed again later
};

RolloutResult replay_rollout(const RolloutTrace& trace);

// A line of rollout_traces.jsonl; throws Error(kInvalid) naming what is missing.
RolloutTrace rollout_trace(const OrderedJson& row);

// -> result lines (id, mode, plan, score in seconds, ratio to the verl order, us for each plan).
std::vector<OrderedJson> run_rollout_trace_case(const OrderedJson& row, double (*now_us)());

}  // namespace keel::balance
