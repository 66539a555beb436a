// Gives each sequence of a batch to a group of ranks of its own size (hybrid data and context
// parallelism): short sequences stay on one rank, long ones are split over as many as memory needs
// or time gains. Pure: same input, same plan; ties go to the lower index.
//
// Moldable task scheduling: for a target time every sequence takes the smallest group that meets
// it, widest first, each to the ranks that are free earliest; several targets are tried, then group
// sizes and order are changed at random where that helps.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "keel/balance/sequence_cost.h"

namespace keel::balance {

// Time of a sequence of s tokens on g = ring * ulysses ranks, in the units of `compute`:
//   compute(s) / g + (ring - 1) * (ring_latency + ring_per_token * s / g)
//                  + [ulysses > 1] (a2a_latency + a2a_per_token * s / g * (ulysses - 1) / ulysses)
struct ContextCost {
  SequenceCost compute;
  double ring_latency = 0;
  double ring_per_token = 0;
  double a2a_latency = 0;  // all of a sequence's all-to-alls together
  double a2a_per_token = 0;
  int32_t max_ulysses =
      1;  // largest Ulysses degree (heads per tensor-parallel rank); 1 = ring only
};

struct ContextChoice {
  double time = 0;
  int32_t ulysses = 1;  // divides the group; ring degree = group / ulysses
};

// The cheapest split of a group between ring and Ulysses (degrees that divide max_ulysses).
ContextChoice choose_context(int64_t tokens, int32_t group, const ContextCost& cost);

struct HdpTask {
  int32_t num_ranks = 1;
  int64_t capacity_tokens = 0;  // most tokens of a sequence on one rank
  ContextCost cost;
  double tolerance = 1e-2;  // good enough: makespan <= lower bound * (1 + tolerance)
  int64_t effort = 50000;   // limit of the search, in sequences placed (about 50 ns each)
};

// One micro-batch: the ranks form a ring (in the order given) and run the sequences one after the
// other; packed, each rank holds at most capacity_tokens of them.
struct HdpStep {
  std::vector<int32_t> ranks;      // ascending
  std::vector<int32_t> sequences;  // in order
  int32_t ulysses = 1;
};

struct HdpPlan {
  std::vector<HdpStep> steps;  // each rank runs its steps in this order
  double makespan = 0;
  double lower_bound = 0;
  int32_t num_groups = 0;  // different sets of two and more ranks: communicators to make or keep
};

// Throws Error(kInvalid) if num_ranks or capacity_tokens < 1, a length, coefficient or limit is
// negative, or a sequence does not fit on all ranks together.
HdpPlan plan_context_groups(std::span<const int64_t> lengths, const HdpTask& task);

// Time until the last rank is done when every rank runs its steps in order and the ranks of a step
// start together.
double simulate_steps(std::span<const int64_t> lengths, const HdpTask& task,
                      std::span<const HdpStep> steps);

// Empty if each sequence is in one step, ranks are in range, memory suffices and the stated
// makespan is right; otherwise what is wrong.
std::string validate(std::span<const int64_t> lengths, const HdpTask& task, const HdpPlan& plan);

}  // namespace keel::balance
