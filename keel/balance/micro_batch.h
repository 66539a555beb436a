// Packs sequences into micro-batches under a token cap: as few as the search finds, balanced.
// Pure: same input, same plan; ties go to the lower index.
//
// Items of one group share a prefix (the prompt of a group of answers): the prefix is paid once in
// every micro-batch that holds members of the group. Candidates (whole groups or single answers;
// first-fit and longest-first with a shrinking cap) are scored by count, then by the largest
// micro-batch, then by total tokens. The shrinking cap is MULTIFIT (Coffman, Garey, Johnson 1978).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace keel::balance {

struct PackItem {
  int64_t tokens = 0;         // own tokens, >= 0
  int64_t group = -1;         // >= 0: shares `prefix_tokens` with items of the same group
  int64_t prefix_tokens = 0;  // equal for all items of a group; paid for every item when group < 0
};

struct PackLimits {
  int64_t cap_tokens = 0;  // > 0; only a lone item (with its prefix) may be larger
  int32_t min_count = 1;   // at least so many micro-batches (ranks in lockstep need equal counts)
};

struct MicroBatch {
  std::vector<int32_t> items;  // ascending indices; empty only where min_count asks for more
  int64_t tokens = 0;          // with each group's prefix counted once
};

struct MicroBatchPlan {
  std::vector<MicroBatch> micro_batches;  // largest first
};

// Throws Error(kInvalid) if cap_tokens <= 0, min_count < 1, a token count is negative or the items
// of a group state different prefixes.
MicroBatchPlan pack_micro_batches(std::span<const PackItem> items, const PackLimits& limits);

// Empty if every item is in exactly one micro-batch, token counts are right and the cap holds;
// otherwise what is wrong.
std::string validate(std::span<const PackItem> items, const PackLimits& limits,
                     const MicroBatchPlan& plan);

}  // namespace keel::balance
