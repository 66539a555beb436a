// What the ranks of a lockstep group agree on before they plan a step, and how many drafted tokens
// a step verifies. Pure functions; the ranks exchange RankLoad (a few integers) once a step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "keel/sched/drafter.h"

namespace keel::sched {

struct RankLoad {
  int32_t running = 0;
  int32_t waiting = 0;
  int32_t max_seqs = 0;
  int64_t pending_rows = 0;  // of prompts that wait or are half computed
};

// Bounds for Scheduler::plan().
struct StepLimits {
  int32_t max_rows = 0;  // of the step; 0 = SchedulerConfig::step_tokens
  bool admit = true;     // new sequences may start
};

struct LockstepStep {
  StepLimits limits;
  int32_t padded_rows = 0;  // every rank's batch has this size; 0 = nobody has work
};

// The smallest bucket >= rows; rows itself beyond the largest or without buckets.
int32_t padded_rows(std::span<const int32_t> buckets, int32_t rows);

// All ranks step at the size of the fullest. Decodes alone: the bucket of the most running. Where a
// prompt is to be computed, the step grows to the largest bucket that the pending rows of the
// busiest rank fill. While a rank has all its slots full and others wait for room, nobody admits:
// one rank's admissions would only lengthen everybody's step (vllm-ascend's balance scheduling).
// buckets: ascending; max_rows > 0: rows of any step.
LockstepStep agree_on_step(std::span<const RankLoad> ranks, std::span<const int32_t> buckets,
                           int32_t max_rows);

// How many tokens of each draft to verify in one step: the most probable ones first, as long as
// each makes the step produce more tokens a second and rows are left. All zero where plain decoding
// is faster. max_rows: rows for drafts, beyond the one of each request.
std::vector<int32_t> budget_drafts(std::span<const Draft> drafts, const VerifyCost& cost,
                                   int32_t max_rows);

}  // namespace keel::sched
