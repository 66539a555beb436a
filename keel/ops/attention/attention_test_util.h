// Random attention problems for tests and benchmarks: sequences over a pool whose blocks lie in
// scattered order.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "keel/base/rng.h"
#include "keel/ops/attention/attention_kernels.h"

namespace keel::ops::test {

inline float to_bf16(float x) {
  uint32_t u;
  std::memcpy(&u, &x, 4);
  u = (u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000u;
  std::memcpy(&x, &u, 4);
  return x;
}

inline std::vector<float> random_floats(int64_t n, uint64_t seed, bool bf16 = false) {
  std::vector<float> x(n);
  for (int64_t i = 0; i < n; ++i) {
    x[i] = static_cast<float>(2 * uniform(seed, i) - 1) * 1.7f;
    if (bf16) x[i] = to_bf16(x[i]);
  }
  return x;
}

// A sequence to build: its rows follow those of the sequence before.
struct Want {
  int num_rows = 0;
  int first_position = 0;
  int shares_blocks_of = -1;  // earlier sequence whose full blocks below first_position are used
};

struct Problem {
  AttentionShape shape;
  int64_t rows = 0;
  int num_blocks = 1;
  std::vector<std::vector<int32_t>> blocks;
  std::vector<AttentionSequence> sequences;
  std::vector<float> q, k_pool, v_pool;
  std::vector<uint16_t> k_half, v_half;

  KvPool pool() { return {k_pool.data(), v_pool.data(), DType::kF32}; }
  KvPool half_pool() { return {k_half.data(), v_half.data(), DType::kBF16}; }
  int64_t q_width() const { return int64_t{shape.num_heads} * shape.head_dim; }
  int64_t block_values() const { return int64_t{kKvBlock} * shape.num_kv_heads * shape.head_dim; }
};

inline Problem make_problem(int num_heads, int num_kv_heads, int head_dim, std::vector<Want> wants,
                            bool bf16 = false, uint64_t seed = 1) {
  Problem p;
  p.shape = {num_heads, num_kv_heads, head_dim, 1.0f / std::sqrt(static_cast<float>(head_dim)),
             bf16};
  for (const Want& w : wants) {
    const int count = (w.first_position + w.num_rows + kKvBlock - 1) / kKvBlock;
    std::vector<int32_t> list;
    if (w.shares_blocks_of >= 0) {
      const auto& from = p.blocks[w.shares_blocks_of];
      list.assign(from.begin(), from.begin() + w.first_position / kKvBlock);
    }
    while (static_cast<int>(list.size()) < count) list.push_back(p.num_blocks++);
    p.blocks.push_back(list);
    p.rows += w.num_rows;
  }
  // Scatter: an odd stride modulo a power of two is a permutation; block 0 stays.
  int span = 1;
  while (span < p.num_blocks) span *= 2;
  for (auto& list : p.blocks)
    for (int32_t& b : list) b = (b * 5) % span;
  p.num_blocks = span;
  int64_t row = 0;
  for (size_t i = 0; i < wants.size(); ++i) {
    p.sequences.push_back({row, wants[i].num_rows, wants[i].first_position, p.blocks[i].data()});
    row += wants[i].num_rows;
  }
  p.q = random_floats(p.rows * p.q_width(), seed, bf16);
  p.k_pool = random_floats(p.num_blocks * p.block_values(), seed + 1, bf16);
  p.v_pool = random_floats(p.num_blocks * p.block_values(), seed + 2, bf16);
  if (bf16) {
    for (float x : p.k_pool) p.k_half.push_back(std::bit_cast<uint32_t>(x) >> 16);
    for (float x : p.v_pool) p.v_half.push_back(std::bit_cast<uint32_t>(x) >> 16);
  }
  return p;
}

// Slots that no sequence uses: the null block and the tail of last blocks become NaN.
inline void poison_unused(Problem& p) {
  std::vector<uint8_t> used(p.num_blocks * kKvBlock, 0);
  for (size_t i = 0; i < p.sequences.size(); ++i) {
    const int length = p.sequences[i].first_position + p.sequences[i].num_rows;
    for (int j = 0; j < length; ++j) used[p.blocks[i][j / kKvBlock] * kKvBlock + j % kKvBlock] = 1;
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const int d = p.shape.head_dim;
  for (int b = 0; b < p.num_blocks; ++b) {
    for (int h = 0; h < p.shape.num_kv_heads; ++h) {
      const int64_t at = (int64_t{b} * p.shape.num_kv_heads + h) * d * kKvBlock;
      for (int s = 0; s < kKvBlock; ++s) {
        if (used[b * kKvBlock + s]) continue;
        for (int i = 0; i < d; ++i) {
          p.k_pool[at + i * kKvBlock + s] = nan;
          p.v_pool[at + s * d + i] = nan;
        }
      }
    }
  }
}

inline constexpr float kSentinel = -77.0f;

struct Result {
  std::vector<float> out, lse;
  bool operator==(const Result& o) const {
    return std::memcmp(out.data(), o.out.data(), out.size() * 4) == 0 &&
           std::memcmp(lse.data(), o.lse.data(), lse.size() * 4) == 0;
  }
};

inline Result forward(Problem& p, const std::vector<AttentionSequence>& sequences, KvPool pool) {
  Result r = {std::vector<float>(p.rows * p.q_width(), kSentinel),
              std::vector<float>(p.rows * p.shape.num_heads, kSentinel)};
  attention_forward(p.shape, p.q.data(), p.q_width(), pool, sequences, r.out.data(), p.q_width(),
                    r.lse.data());
  return r;
}

struct Gradients {
  std::vector<float> dq, dk, dv;
};

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

inline Gradients backward(Problem& p, const std::vector<AttentionSequence>& sequences,
                          const Result& r, const std::vector<float>& dout) {
  Gradients g = {std::vector<float>(p.q.size(), kSentinel),
                 std::vector<float>(p.k_pool.size(), kSentinel),
                 std::vector<float>(p.v_pool.size(), kSentinel)};
  attention_backward(p.shape, p.q.data(), p.q_width(), p.pool(), sequences, r.out.data(),
                     p.q_width(), r.lse.data(), dout.data(), p.q_width(), g.dq.data(), p.q_width(),
                     g.dk.data(), g.dv.data());
  return g;
}

}  // namespace keel::ops::test
