// Micro-kernels that attention's forward and backward share. Included once per Highway target.
//
// A "tile" keeps kRows x kV vectors of sums in registers: c[r][n] += a[r][k] * b[k][n], k in
// order, one fused multiply-add each. An element's order of operations depends on k alone, so its
// bits do not depend on the tile it is computed in. GCC keeps the accumulators in registers only if
// every index is a constant: hence the index sequences.

// NOLINTNEXTLINE(bugprone-*): Highway's include guard, toggled per target
#if defined(KEEL_OPS_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_OPS_ATTENTION_INL_H_
#undef KEEL_OPS_ATTENTION_INL_H_
#else
#define KEEL_OPS_ATTENTION_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "keel/ops/attention/attention_kernels.h"
#include "keel/ops/simd_math-inl.h"

#ifndef KEEL_INLINE_LAMBDA
#define KEEL_INLINE_LAMBDA __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace keel::ops::HWY_NAMESPACE {

using Half = hn::CappedTag<float, 8>;
inline constexpr size_t kBlockVecs = kVecs;  // vectors of a key block
// 6 x 2 accumulators hide the latency of fused multiply-add and leave registers for operands. The
// scalar target has no registers to fill: one row keeps its code small.
inline constexpr size_t kMaxTileRows = kLanes == 1 ? 1 : 6;

inline constexpr float kNegInf = -std::numeric_limits<float>::infinity();

// Sum of 8 in a fixed tree; written out, GCC's vectorized loop stalls on store forwarding.
HWY_INLINE float lane_tree_8(const float* x) {
  return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

template <class D>
HWY_INLINE hn::Vec<D> load_pool(D d, const float* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> load_pool(D d, const uint16_t* p) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint16_t, D> dh;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(dh, p))));
}

// Strides of the operands of a tile, in elements. b holds kBases pointers; vector n of step k lies
// at b[n / kPerBase] + k * b_step + (n % kPerBase) * lanes.
struct TileA {
  const float* a;
  size_t row;   // from one row of the tile to the next
  size_t step;  // from one k to the next
};

template <size_t kV, class D, size_t... N>
HWY_INLINE void tile_row(D d, const float* a, const hn::Vec<D>* b, hn::Vec<D>* c,
                         std::index_sequence<N...> /*n*/) {
  const auto x = hn::Set(d, *a);
  ((c[N] = hn::MulAdd(x, b[N], c[N])), ...);
}

template <size_t kV, size_t kPerBase, class D, class T, size_t... R, size_t... N>
HWY_INLINE void tile_step(D d, const float* a, size_t a_row, const T* const* b, size_t offset,
                          hn::Vec<D>* c, std::index_sequence<R...> /*r*/,
                          std::index_sequence<N...> n) {
  const hn::Vec<D> bv[kV] = {
      load_pool(d, b[N / kPerBase] + offset + (N % kPerBase) * hn::MaxLanes(D()))...};
  (tile_row<kV>(d, a + R * a_row, bv, c + R * kV, n), ...);
}

// c[kRows * kV] += over k in [0, num_k).
template <size_t kRows, size_t kV, size_t kPerBase, class D, class T>
HWY_INLINE void tile_run(D d, TileA a, const T* const* b, size_t b_step, size_t num_k,
                         hn::Vec<D>* c) {
  const float* p = a.a;
  for (size_t k = 0; k < num_k; ++k) {
    tile_step<kV, kPerBase>(d, p, a.row, b, k * b_step, c, std::make_index_sequence<kRows>(),
                            std::make_index_sequence<kV>());
    p += a.step;
  }
}

template <class D, size_t... I>
HWY_INLINE void tile_zero(D d, hn::Vec<D>* c, std::index_sequence<I...> /*i*/) {
  ((c[I] = hn::Zero(d)), ...);
}

// f(row, vector, sum) for each vector of sums of a tile; all indices are constants.
template <size_t kV, class V, class F, size_t... I>
HWY_INLINE void tile_each(const V* c, F&& f, std::index_sequence<I...> /*i*/) {
  (f(I / kV, I % kV, c[I]), ...);
}

// Calls f(integral_constant<size_t, rows>) for 1 <= rows <= kMaxTileRows.
template <size_t kRows = kMaxTileRows, class F>
HWY_INLINE void with_tile_rows(size_t rows, F&& f) {
  if constexpr (kRows > 1) {
    if (rows != kRows) return with_tile_rows<kRows - 1>(rows, f);
  }
  f(std::integral_constant<size_t, kRows>());
}

// Rows of the next tile when `rows` are left: never leaves a remainder of one or two.
HWY_INLINE size_t tile_rows(size_t rows) {
  if (rows <= kMaxTileRows) return rows;
  return rows < 2 * kMaxTileRows ? (rows + 1) / 2 : kMaxTileRows;
}

// Pieces of 16 columns side by side (a power of two) that give a tile of kRows rows about 12
// accumulators.
constexpr size_t tile_blocks(size_t rows) {
  const size_t pieces = 12 / (rows * kBlockVecs);
  return pieces >= 4 ? 4 : pieces >= 2 ? 2 : 1;
}
template <size_t kRows>
inline constexpr size_t kTileBlocks = tile_blocks(kRows);

// s[r][16 * j + i] = sum over head_dim of q[r] * key i of block j, for num_blocks blocks of one
// split. k: pointers to [head_dim][16]. s has leading dimension kKvSplit.
template <size_t kRows, class T>
HWY_INLINE void score_tile(const float* q, size_t head_dim, const T* const* k, size_t num_blocks,
                           float* s) {
  const F32 d;
  const auto run = [&](auto blocks, size_t j) KEEL_INLINE_LAMBDA {
    constexpr size_t kV = decltype(blocks)::value * kBlockVecs;
    constexpr std::make_index_sequence<kRows * kV> kAll;
    VF c[kRows * kV];
    tile_zero(d, c, kAll);
    tile_run<kRows, kV, kBlockVecs>(d, TileA{q, head_dim, 1}, k + j, kKvBlock, head_dim, c);
    float* out = s + j * kKvBlock;
    tile_each<kV>(
        c,
        [&](size_t r, size_t n, VF sum)
            KEEL_INLINE_LAMBDA { hn::StoreU(sum, d, out + r * kKvSplit + n * kLanes); },
        kAll);
  };
  size_t j = 0;
  constexpr size_t kBlocks = kTileBlocks<kRows>;
  for (; j + kBlocks <= num_blocks; j += kBlocks) run(std::integral_constant<size_t, kBlocks>(), j);
  if constexpr (kBlocks > 1) {
    for (; j < num_blocks; ++j) run(std::integral_constant<size_t, 1>(), j);
  }
}

// Cuts head_dim columns (a multiple of 8) into pieces for tiles of kRows rows:
// f(lane tag, integral_constant<vectors>, first column).
template <size_t kRows, class F>
HWY_INLINE void for_columns(size_t head_dim, F&& f) {
  constexpr size_t kBlocks = kTileBlocks<kRows>;
  size_t col = 0;
  for (; col + kBlocks * 16 <= head_dim; col += kBlocks * 16)
    f(F32(), std::integral_constant<size_t, kBlocks * kBlockVecs>(), col);
  if constexpr (kBlocks > 1) {
    for (; col + 16 <= head_dim; col += 16)
      f(F32(), std::integral_constant<size_t, kBlockVecs>(), col);
  }
  if (col < head_dim) f(Half(), std::integral_constant<size_t, 8 / hn::MaxLanes(Half())>(), col);
}

// sum over keys [0, num_keys) of w[r][key] * row key of v. v: pointers to [16][head_dim], one for
// each block; w has leading dimension kKvSplit. finish(lane tag, row, column, sum) takes the sums.
template <size_t kRows, class T, class F>
HWY_INLINE void value_tile(const float* w, size_t num_keys, const T* const* v, size_t head_dim,
                           F&& finish) {
  for_columns<kRows>(head_dim, [&](auto d, auto vecs, size_t col) KEEL_INLINE_LAMBDA {
    constexpr size_t kV = decltype(vecs)::value;
    constexpr std::make_index_sequence<kRows * kV> kAll;
    using V = hn::Vec<decltype(d)>;
    V c[kRows * kV];
    tile_zero(d, c, kAll);
    for (size_t j = 0; j * kKvBlock < num_keys; ++j) {
      const T* const base = v[j] + col;
      const size_t keys = std::min<size_t>(kKvBlock, num_keys - j * kKvBlock);
      tile_run<kRows, kV, kV>(d, TileA{w + j * kKvBlock, kKvSplit, 1}, &base, head_dim, keys, c);
    }
    tile_each<kV>(
        c,
        [&](size_t r, size_t n, V sum)
            KEEL_INLINE_LAMBDA { finish(d, r, col + n * hn::MaxLanes(d), sum); },
        kAll);
  });
}

// Value rows of one split repacked as [ceil(head_dim / 16)][64][16]: rows whose stride is a large
// power of two fall into few cache sets, so many query rows are worth a copy.
HWY_INLINE size_t panel_floats(size_t head_dim) { return (head_dim + 15) / 16 * 16 * kKvSplit; }

template <class T>
void pack_panels(const T* const* v, size_t num_keys, size_t head_dim, float* panels) {
  const Half d;
  for (size_t key = 0; key < num_keys; ++key) {
    const T* const from = v[key / kKvBlock] + key % kKvBlock * head_dim;
    float* const to = panels + key * 16;
    for (size_t col = 0; col < head_dim; col += hn::MaxLanes(d))
      hn::StoreU(load_pool(d, from + col), d, to + col / 16 * 16 * kKvSplit + col % 16);
  }
}

// value_tile for 16 columns (or 8, at the end of head_dim) of a panel.
template <size_t kRows, class F>
HWY_INLINE void panel_tile(const float* w, size_t num_keys, const float* panels, size_t head_dim,
                           size_t col, F&& finish) {
  const auto run = [&](auto d, auto vecs) KEEL_INLINE_LAMBDA {
    constexpr size_t kV = decltype(vecs)::value;
    constexpr std::make_index_sequence<kRows * kV> kAll;
    using V = hn::Vec<decltype(d)>;
    V c[kRows * kV];
    tile_zero(d, c, kAll);
    const float* const base = panels + col * kKvSplit;
    tile_run<kRows, kV, kV>(d, TileA{w, kKvSplit, 1}, &base, 16, num_keys, c);
    tile_each<kV>(
        c,
        [&](size_t r, size_t n, V sum)
            KEEL_INLINE_LAMBDA { finish(d, r, col + n * hn::MaxLanes(d), sum); },
        kAll);
  };
  if (head_dim - col >= 16) {
    run(F32(), std::integral_constant<size_t, kBlockVecs>());
  } else {
    run(Half(), std::integral_constant<size_t, 8 / hn::MaxLanes(Half())>());
  }
}

}  // namespace keel::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
