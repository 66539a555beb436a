// Which ids a truncated sampler keeps (internal; pure).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace keel::ops {

// logits: one row, already divided by the temperature; max: its largest value. Order: top-k (ties
// with the k-th value stay; 0 = off), top-p (1 = off), min-p (0 = off). Returns ascending ids, at
// least one; empty if nothing is cut. No full sort: weighted selection, O(n).
std::vector<int32_t> kept_ids(std::span<const float> logits, float max, int32_t top_k, float top_p,
                              float min_p);

}  // namespace keel::ops
