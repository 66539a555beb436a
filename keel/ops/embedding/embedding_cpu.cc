#include <algorithm>
#include <bit>

#include "keel/base/thread_pool.h"
#include "keel/ops/embedding/embedding_kernels.h"

namespace keel::ops {
namespace {

constexpr int64_t kRows = 16;     // rows per task, forward
constexpr int64_t kColumns = 64;  // columns per task, backward

int64_t column_offset(DType dtype, int64_t column) {
  // bf16 panels interleave (0, 8, 1, 9, ...); see packed.h.
  return dtype == DType::kF32 ? column : (column % 8) * 2 + column / 8;
}

}  // namespace

void embedding_forward(const PackedView& table, const int32_t* tokens, int64_t m, float* x) {
  const int64_t k = table.k;
  compute_pool().parallel_for((m + kRows - 1) / kRows, [&](int64_t c, int) {
    for (int64_t r = c * kRows; r < std::min(m, (c + 1) * kRows); ++r) {
      const int64_t at =
          tokens[r] / kPanel * kPanel * k + column_offset(table.dtype, tokens[r] % kPanel);
      float* out = x + r * k;
      if (table.dtype == DType::kF32) {
        const float* in = static_cast<const float*>(table.data) + at;
        for (int64_t i = 0; i < k; ++i) out[i] = in[i * kPanel];
      } else {
        const uint16_t* in = static_cast<const uint16_t*>(table.data) + at;
        for (int64_t i = 0; i < k; ++i)
          out[i] = std::bit_cast<float>(static_cast<uint32_t>(in[i * kPanel]) << 16);
      }
    }
  });
}

void embedding_backward(const int32_t* tokens, const float* dx, int64_t m, int64_t k, float* dw) {
  compute_pool().parallel_for((k + kColumns - 1) / kColumns, [&](int64_t c, int) {
    const int64_t begin = c * kColumns, end = std::min(k, begin + kColumns);
    for (int64_t r = 0; r < m; ++r) {
      float* out = dw + tokens[r] / kPanel * kPanel * k + tokens[r] % kPanel;
      for (int64_t i = begin; i < end; ++i) out[i * kPanel] += dx[r * k + i];
    }
  });
}

}  // namespace keel::ops
