// What one sequence costs a rank: linear layers grow with its tokens, attention with their square.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace keel::balance {

// cost(s) = linear * s + quadratic * s^2 in whatever unit the caller likes. With quadratic = 1,
// `linear` is the length in tokens at which both parts are equal (28,011 for Qwen3-235B).
struct SequenceCost {
  int64_t linear = 1;
  int64_t quadratic = 0;

  int64_t of(int64_t tokens) const { return (linear + quadratic * tokens) * tokens; }
};

// Costs of all lengths. Throws Error(kInvalid), its message starting with [where], if a length or a
// coefficient is negative or the sum of all costs does not fit 62 bits.
std::vector<int64_t> sequence_costs(std::span<const int64_t> lengths, const SequenceCost& cost,
                                    std::string_view where);

}  // namespace keel::balance
