// Balancers of verl and slime, reproduced exactly: baselines of sequence_balance.h and
// lockstep_batches.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace keel::balance::published {

using Parts = std::vector<std::vector<int32_t>>;

// verl's largest differencing method (Karmarkar and Karp 1982). States of `num_parts` sets are
// merged two by two, those with the largest spread first, the largest set of one with the smallest
// of the other. equal: parts of equal size (num_parts must divide the number of weights).
// Item order within a part is that of the merges. Throws Error(kInvalid) on counts that do not fit.
Parts karmarkar_karp(std::span<const int64_t> weights, int32_t num_parts, bool equal);

// The same with each part sorted; what verl and slime call.
Parts verl_balanced_partitions(std::span<const int64_t> weights, int32_t num_parts, bool equal);

// verl's greedy variant: items in their given order to the part with the smallest sum.
Parts verl_greedy(std::span<const int64_t> weights, int32_t num_parts, bool equal);

// slime's schedule of one step: first fit under `cap` in the given order; the fullest bins are
// halved until ranks get equally many; bins go round robin or, with balance, by Karmarkar-Karp on
// cost_linear * s + s^2. Returns [rank][micro-batch] item indices.
std::vector<Parts> slime_schedule(std::span<const int64_t> lengths, int64_t cap, int32_t num_ranks,
                                  bool balance, int64_t cost_linear);

}  // namespace keel::balance::published
