// Deals prompts over data-parallel ranks: counts differ by at most one, costs are levelled.
// Pure: same input, same plan; ties go to the lower index and the lower rank.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace keel::balance {

struct DealPlan {
  std::vector<std::vector<int32_t>> ranks;  // [num_ranks] ascending item indices
};

// costs[i]: estimated work of prompt i (tokens), >= 0. Longest first, each to the least loaded rank
// that still has room (LPT, Graham 1969, with equal counts).
// Throws Error(kInvalid) if num_ranks < 1 or a cost is negative.
DealPlan deal(std::span<const int64_t> costs, int32_t num_ranks);

// Empty if every item is dealt once and counts differ by at most one; otherwise what is wrong.
std::string validate(std::span<const int64_t> costs, int32_t num_ranks, const DealPlan& plan);

}  // namespace keel::balance
