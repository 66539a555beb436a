#include "keel/base/rng.h"

namespace keel {

std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter_lo, uint64_t counter_hi) {
  constexpr uint32_t kMul0 = 0xD2511F53u, kMul1 = 0xCD9E8D57u;
  constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  std::array<uint32_t, 4> c = {
      static_cast<uint32_t>(counter_lo), static_cast<uint32_t>(counter_lo >> 32),
      static_cast<uint32_t>(counter_hi), static_cast<uint32_t>(counter_hi >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kMul0) * c[0];
    const uint64_t p1 = static_cast<uint64_t>(kMul1) * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return c;
}

double uniform(uint64_t key, uint64_t counter_lo, uint64_t counter_hi) {
  const auto w = philox(key, counter_lo, counter_hi);
  const uint64_t bits = (static_cast<uint64_t>(w[0]) << 32 | w[1]) >> 12;  // 52 bits
  return (static_cast<double>(bits) + 0.5) * 0x1p-52;
}

__extension__ typedef unsigned __int128 Wide;

uint64_t uniform_int(uint64_t bound, uint64_t key, uint64_t counter_lo, uint64_t counter_hi) {
  const auto w = philox(key, counter_lo, counter_hi);
  const uint64_t bits = static_cast<uint64_t>(w[0]) << 32 | w[1];
  return static_cast<uint64_t>(static_cast<Wide>(bits) * bound >> 64);
}

uint64_t mix_key(uint64_t a, uint64_t b) {
  uint64_t z = a + 0x9E3779B97F4A7C15ull * (b + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

}  // namespace keel
