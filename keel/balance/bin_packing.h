// Fewest bins under a capacity, shared by the micro-batch planners.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace keel::balance {

using BinItems = std::vector<std::vector<int32_t>>;  // [bin] item indices

// Lower bound on the number of bins (Martello and Toth's L2); an item over the capacity counts as
// a bin of its own.
int64_t bin_bound(std::span<const int64_t> sizes, int64_t capacity);

// Best fit decreasing. Items over the capacity get a bin of their own, first.
BinItems best_fit_decreasing(std::span<const int64_t> sizes, int64_t capacity);

// Tries to need at most `target` bins: best fit decreasing; then, where all bins must hold exactly
// three items, an exact cover by triples; then bins filled as full as possible one after the other
// (minimum bin slack, Gupta and Ho 1999), some of them emptied and filled again. Returns the fewest
// bins found; stops at the target or after `effort` steps. Deterministic.
BinItems pack_bins(std::span<const int64_t> sizes, int64_t capacity, int64_t target,
                   int64_t effort);

}  // namespace keel::balance
