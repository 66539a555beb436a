#include "keel/ops/packed.h"

#include <algorithm>
#include <bit>

#include "keel/base/error.h"

namespace keel::ops {
namespace {

// Where column c of a panel row lies in a bf16 panel.
int bf16_slot(int c) { return c < 8 ? 2 * c : 2 * (c - 8) + 1; }

template <class Store>
void for_rows(int64_t row, int64_t rows, int64_t n, int64_t k, Store&& store) {
  KEEL_CHECK(row >= 0 && rows >= 0 && row + rows <= n, "rows {}..{} of {}", row, row + rows, n);
  for (int64_t r = row; r < row + rows; ++r)
    store(r, (r / kPanel) * kPanel * k, static_cast<int>(r % kPanel));
}

}  // namespace

int num_leaves_for(int64_t k) { return k >= 1024 ? 8 : k >= 512 ? 4 : k >= 256 ? 2 : 1; }

int64_t leaf_begin(int64_t k, int num_leaves, int leaf) {
  return leaf == num_leaves ? k : leaf * k / num_leaves / 8 * 8;
}

uint16_t to_bf16(float value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(round_to_bf16(value)) >> 16);
}

float from_bf16(uint16_t value) { return std::bit_cast<float>(uint32_t{value} << 16); }

void pack_rows(const float* w, int64_t ldw, int64_t row, int64_t rows, int64_t n, int64_t k,
               DType dtype, void* packed) {
  auto* f32 = static_cast<float*>(packed);
  auto* bf16 = static_cast<uint16_t*>(packed);
  for_rows(row, rows, n, k, [&](int64_t r, int64_t base, int c) {
    const float* in = w + (r - row) * ldw;
    if (dtype == DType::kF32) {
      for (int64_t i = 0; i < k; ++i) f32[base + i * kPanel + c] = in[i];
    } else {
      const int slot = bf16_slot(c);
      for (int64_t i = 0; i < k; ++i) bf16[base + i * kPanel + slot] = to_bf16(in[i]);
    }
  });
  if (row + rows != n) return;
  for (int64_t r = n; r < num_panels(n) * kPanel; ++r) {  // columns past n
    const int64_t base = (r / kPanel) * kPanel * k;
    const int c = static_cast<int>(r % kPanel);
    for (int64_t i = 0; i < k; ++i) {
      if (dtype == DType::kF32) {
        f32[base + i * kPanel + c] = 0;
      } else {
        bf16[base + i * kPanel + bf16_slot(c)] = 0;
      }
    }
  }
}

void unpack_rows(const PackedView& w, int64_t row, int64_t rows, float* out, int64_t ldout) {
  const auto* f32 = static_cast<const float*>(w.data);
  const auto* bf16 = static_cast<const uint16_t*>(w.data);
  for_rows(row, rows, w.n, w.k, [&](int64_t r, int64_t base, int c) {
    float* to = out + (r - row) * ldout;
    if (w.dtype == DType::kF32) {
      for (int64_t i = 0; i < w.k; ++i) to[i] = f32[base + i * kPanel + c];
    } else {
      const int slot = bf16_slot(c);
      for (int64_t i = 0; i < w.k; ++i) to[i] = from_bf16(bf16[base + i * kPanel + slot]);
    }
  });
}

}  // namespace keel::ops
