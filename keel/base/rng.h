// Counter-based random numbers (Philox 4x32-10, Salmon et al., SC'11): a pure function of (key,
// counter), so a draw does not depend on what else was drawn, on threads, batches or restarts.
#pragma once

#include <array>
#include <cstdint>

namespace keel {

// Four independent 32-bit words for one (key, counter) pair.
std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter_lo, uint64_t counter_hi = 0);

// Uniform in the open interval (0, 1) with 52 random bits; never 0 or 1.
double uniform(uint64_t key, uint64_t counter_lo, uint64_t counter_hi = 0);

// Uniform integer in [0, bound), bound > 0, without modulo bias worth mentioning (64-bit
// multiply-high).
uint64_t uniform_int(uint64_t bound, uint64_t key, uint64_t counter_lo, uint64_t counter_hi = 0);

// Mixes words into a key (SplitMix64 finaliser); use it to derive a stream per purpose.
uint64_t mix_key(uint64_t a, uint64_t b);

}  // namespace keel
