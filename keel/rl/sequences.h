// Ragged per-token arrays: sequence s owns entries [offsets[s], offsets[s + 1]). No padding exists
// anywhere.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace keel::rl {

struct Ragged {
  std::span<const int64_t> offsets;  // sequences + 1
  int64_t num_sequences() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t begin(int64_t s) const { return offsets[static_cast<size_t>(s)]; }
  int64_t end(int64_t s) const { return offsets[static_cast<size_t>(s) + 1]; }
  int64_t num_tokens() const { return offsets.back(); }
};

}  // namespace keel::rl
