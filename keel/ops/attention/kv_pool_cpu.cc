#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "keel/base/error.h"
#include "keel/base/thread_pool.h"
#include "keel/ops/attention/attention_kernels.h"

namespace keel::ops {
namespace {

// Below this many values a parallel region costs more than it saves.
constexpr int64_t kSerialValues = 16384;

void put(float x, float* to) { *to = x; }

// Nearest even; values of bf16 models are bf16 already and stay as they are.
void put(float x, uint16_t* to) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  *to = static_cast<uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

// One run of slots that share a block: head by head, so that the block's cache lines are written
// while they are near.
template <class T>
void scatter_run(const AttentionShape& shape, const float* k, const float* v, int64_t ld,
                 std::span<const KvSlot> slots, const KvPool& pool) {
  const int64_t d = shape.head_dim;
  for (int64_t h = 0; h < shape.num_kv_heads; ++h) {
    const int64_t at = (slots[0].block * int64_t{shape.num_kv_heads} + h) * d * kKvBlock;
    T* const to_k = static_cast<T*>(pool.k) + at;
    T* const to_v = static_cast<T*>(pool.v) + at;
    for (const KvSlot& s : slots) {
      const float* const from_k = k + s.row * ld + h * d;
      const float* const from_v = v + s.row * ld + h * d;
      for (int64_t i = 0; i < d; ++i) put(from_k[i], to_k + i * kKvBlock + s.slot);
      for (int64_t i = 0; i < d; ++i) put(from_v[i], to_v + s.slot * d + i);
    }
  }
}

}  // namespace

void kv_scatter(const AttentionShape& shape, const float* k, const float* v, int64_t ld,
                std::span<const KvSlot> slots, const KvPool& pool) {
  std::vector<size_t> starts;
  for (size_t i = 0; i < slots.size(); ++i) {
    KEEL_CHECK(slots[i].slot >= 0 && slots[i].slot < kKvBlock, "slot {}", slots[i].slot);
    if (i == 0 || slots[i].block != slots[i - 1].block) starts.push_back(i);
  }
  const auto run = [&](int64_t i, int) {
    const size_t end = i + 1 < static_cast<int64_t>(starts.size()) ? starts[i + 1] : slots.size();
    const auto part = slots.subspan(starts[i], end - starts[i]);
    if (pool.dtype == DType::kBF16) {
      scatter_run<uint16_t>(shape, k, v, ld, part, pool);
    } else {
      scatter_run<float>(shape, k, v, ld, part, pool);
    }
  };
  const int64_t values = static_cast<int64_t>(slots.size()) * shape.num_kv_heads * shape.head_dim;
  if (values < kSerialValues) {
    for (size_t i = 0; i < starts.size(); ++i) run(static_cast<int64_t>(i), 0);
  } else {
    compute_pool().parallel_for(static_cast<int64_t>(starts.size()), run);
  }
}

void kv_copy_block(const AttentionShape& shape, const KvPool& pool, int32_t from, int32_t to) {
  const size_t bytes = size_t{kKvBlock} * shape.num_kv_heads * shape.head_dim *
                       (pool.dtype == DType::kBF16 ? sizeof(uint16_t) : sizeof(float));
  for (void* p : {pool.k, pool.v}) {
    char* const base = static_cast<char*>(p);
    std::memcpy(base + to * bytes, base + from * bytes, bytes);
  }
}

void kv_gather_grad(const AttentionShape& shape, const float* dk_pool, const float* dv_pool,
                    std::span<const KvSlot> slots, float* dk, float* dv, int64_t ld) {
  const int64_t d = shape.head_dim;
  // A unit is one kv head of dk or dv: a row is added to by one thread, in the order of the slots.
  const auto run = [&](int64_t unit, int) {
    const int64_t h = unit / 2;
    const float* const pool = unit % 2 == 0 ? dk_pool : dv_pool;
    float* const out = (unit % 2 == 0 ? dk : dv) + h * d;
    for (const KvSlot& s : slots) {
      const float* const from =
          pool + ((s.block * int64_t{shape.num_kv_heads} + h) * kKvBlock + s.slot) * d;
      float* const to = out + s.row * ld;
      for (int64_t i = 0; i < d; ++i) to[i] += from[i];
    }
  };
  compute_pool().parallel_for(2 * int64_t{shape.num_kv_heads}, run);
}

}  // namespace keel::ops
