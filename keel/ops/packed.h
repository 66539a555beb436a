// How a weight matrix lies in memory: this form *is* the storage; Hugging Face layout exists only
// while loading and saving.
//
// w: [n, k] (n outputs, k inputs) is cut into panels of 16 outputs: [ceil(n/16)][k][16]. Columns
// past n are zero. bf16 panels interleave the 16 values of a k-row as (0, 8, 1, 9, ..., 7, 15), so
// that one 32-byte load, a shift and a mask give two f32 vectors of 8.
//
// K is cut into num_leaves leaves (a power of two, a property of the weight). A dot product sums
// each leaf in k order in f32 with fused multiply-add, merges leaves in a fixed binary tree and
// rounds once. The order does not depend on rows, threads or blocking: equal rows give equal bits
// anywhere.
#pragma once

#include <bit>
#include <cstdint>

namespace keel::ops {

enum class DType : uint8_t { kF32, kBF16 };

inline constexpr int64_t kPanel = 16;

// A view of packed storage; does not own.
struct PackedView {
  const void* data = nullptr;  // float* or uint16_t*, 64-byte aligned
  DType dtype = DType::kF32;
  int64_t n = 0;  // outputs
  int64_t k = 0;  // inputs
  int num_leaves = 1;
};

inline int64_t num_panels(int64_t n) { return (n + kPanel - 1) / kPanel; }
inline int64_t packed_elements(int64_t n, int64_t k) { return num_panels(n) * kPanel * k; }

// Outputs [first, first + count) of w; first is a multiple of 16.
inline PackedView sub_view(const PackedView& w, int64_t first, int64_t count) {
  PackedView out = w;
  out.data = static_cast<const char*>(w.data) + first * w.k * (w.dtype == DType::kF32 ? 4 : 2);
  out.n = count;
  return out;
}

// Leaves for a weight with k inputs: 8 where k >= 1024, 4 from 512, 2 from 256, else 1. Leaf l
// covers [l*k/L, (l+1)*k/L), bounds rounded down to multiples of 8.
int num_leaves_for(int64_t k);
int64_t leaf_begin(int64_t k, int num_leaves, int leaf);

// Nearest even; NaN stays NaN.
uint16_t to_bf16(float value);
float from_bf16(uint16_t value);

// The bf16 value nearest to x, as f32; NaN stays NaN. Inline: loops over it vectorize.
inline float round_to_bf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t nearest = bits + 0x7FFFu + (bits >> 16 & 1);
  return std::bit_cast<float>((x == x ? nearest : bits | 0x400000u) & 0xFFFF0000u);
}

// Copies rows [row, row + rows) of w from row-major f32 (leading dimension ldw) into packed storage
// of [n, k]. For bf16 values are rounded to nearest even. The call that writes row n - 1 also
// zeroes the columns past n.
void pack_rows(const float* w, int64_t ldw, int64_t row, int64_t rows, int64_t n, int64_t k,
               DType dtype, void* packed);

// The inverse, for saving, embedding look-up and tests: out is f32 row-major with leading dimension
// ldout.
void unpack_rows(const PackedView& w, int64_t row, int64_t rows, float* out, int64_t ldout);

}  // namespace keel::ops
