// Bins that must all hold exactly three items with almost no room left: an exact cover by triples.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace keel::balance {

struct TripleCover {
  std::vector<std::vector<int32_t>> bins;  // of three items each, all within the capacity
  std::vector<int32_t> rest;               // items in no bin, descending by size
};

// items: indices into sizes, descending by size. Applies where num_bins bins of three items hold
// all of them and no two items fill a bin within the room that may be left over; otherwise the
// result is empty. Knuth's Algorithm X, always at the item with the fewest triples left, restarted
// with other choices; the deepest cover found within `effort` steps. Deterministic.
TripleCover cover_by_triples(std::span<const int64_t> sizes, std::span<const int32_t> items,
                             int64_t capacity, int64_t num_bins, int64_t effort);

}  // namespace keel::balance
