// Micro-kernels that attention's forward and backward share. Included once per Highway target.
//
// A "tile" keeps kRows x kVecs vectors of sums in registers: c[r][n] += a[r][k] * b[k][n], k in
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

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "keel/ops/attention/attention_kernels.h"

#ifndef KEEL_INLINE_LAMBDA
#define KEEL_INLINE_LAMBDA __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace keel::ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes, so that a key block is a whole number of vectors on every target.
using Wide = hn::CappedTag<float, 16>;
using Half = hn::CappedTag<float, 8>;
using WideVec = hn::Vec<Wide>;
inline constexpr size_t kLanes = hn::MaxLanes(Wide());
inline constexpr size_t kBlockVecs = kKvBlock / kLanes;
// 12 accumulators hide the latency of fused multiply-add; 6 x 2 where 16 floats are two vectors.
inline constexpr size_t kMaxTileRows = kBlockVecs == 1 ? 12 : 6;

inline constexpr float kNegInf = -std::numeric_limits<float>::infinity();

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

// Rounds to bf16 (nearest even), kept as f32.
template <class D>
HWY_INLINE hn::Vec<D> to_bf16(D d, hn::Vec<D> x) {
  const hn::RebindToUnsigned<D> du;
  const auto u = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1u));
  const auto r = hn::Add(u, hn::Add(odd, hn::Set(du, 0x7fffu)));
  return hn::BitCast(d, hn::And(r, hn::Set(du, 0xffff0000u)));
}

// exp(x) for x < 88; 0 below -87.3 (and for -inf), 1 at 0, NaN stays. About 1 ulp. Range reduction
// and polynomial of Cephes' expf (Moshier); the exponent is added to the bits.
template <class D>
HWY_INLINE hn::Vec<D> exp_small(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  const auto magic = hn::Set(d, 12582912.0f);  // 1.5 * 2^23: the sum's low bits are the integer
  const auto t = hn::MulAdd(x, hn::Set(d, 1.44269504088896341f), magic);
  const auto n = hn::Sub(t, magic);
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  auto y = hn::MulAdd(hn::Set(d, 1.9875691500e-4f), r, hn::Set(d, 1.3981999507e-3f));
  y = hn::MulAdd(y, r, hn::Set(d, 8.3334519073e-3f));
  y = hn::MulAdd(y, r, hn::Set(d, 4.1665795894e-2f));
  y = hn::MulAdd(y, r, hn::Set(d, 1.6666665459e-1f));
  y = hn::MulAdd(y, r, hn::Set(d, 5.0000001201e-1f));
  y = hn::Add(hn::MulAdd(y, hn::Mul(r, r), r), hn::Set(d, 1.0f));
  const auto e = hn::ShiftLeft<23>(hn::BitCast(di, t));
  y = hn::BitCast(d, hn::Add(hn::BitCast(di, y), e));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.3f)), y);
}

// Strides of the operands of a tile, in elements. b holds kBases pointers; vector n of step k lies
// at b[n / kPerBase] + k * b_step + (n % kPerBase) * lanes.
struct TileA {
  const float* a;
  size_t row;   // from one row of the tile to the next
  size_t step;  // from one k to the next
};

template <size_t kVecs, class D, size_t... N>
HWY_INLINE void tile_row(D d, const float* a, const hn::Vec<D>* b, hn::Vec<D>* c,
                         std::index_sequence<N...> /*n*/) {
  const auto x = hn::Set(d, *a);
  ((c[N] = hn::MulAdd(x, b[N], c[N])), ...);
}

template <size_t kVecs, size_t kPerBase, class D, class T, size_t... R, size_t... N>
HWY_INLINE void tile_step(D d, const float* a, size_t a_row, const T* const* b, size_t offset,
                          hn::Vec<D>* c, std::index_sequence<R...> /*r*/,
                          std::index_sequence<N...> n) {
  const hn::Vec<D> bv[kVecs] = {
      load_pool(d, b[N / kPerBase] + offset + (N % kPerBase) * hn::MaxLanes(D()))...};
  (tile_row<kVecs>(d, a + R * a_row, bv, c + R * kVecs, n), ...);
}

// c[kRows * kVecs] += over k in [0, num_k).
template <size_t kRows, size_t kVecs, size_t kPerBase, class D, class T>
HWY_INLINE void tile_run(D d, TileA a, const T* const* b, size_t b_step, size_t num_k,
                         hn::Vec<D>* c) {
  const float* p = a.a;
  for (size_t k = 0; k < num_k; ++k) {
    tile_step<kVecs, kPerBase>(d, p, a.row, b, k * b_step, c, std::make_index_sequence<kRows>(),
                               std::make_index_sequence<kVecs>());
    p += a.step;
  }
}

template <class D, size_t... I>
HWY_INLINE void tile_zero(D d, hn::Vec<D>* c, std::index_sequence<I...> /*i*/) {
  ((c[I] = hn::Zero(d)), ...);
}

// f(row, vector, sum) for each vector of sums of a tile; all indices are constants.
template <size_t kVecs, class V, class F, size_t... I>
HWY_INLINE void tile_each(const V* c, F&& f, std::index_sequence<I...> /*i*/) {
  (f(I / kVecs, I % kVecs, c[I]), ...);
}

// Calls f(integral_constant<size_t, rows>) for 1 <= rows <= kMaxTileRows.
template <class F>
HWY_INLINE void with_tile_rows(size_t rows, F&& f) {
  using std::integral_constant;
  switch (rows) {
    case 1:
      return f(integral_constant<size_t, 1>());
    case 2:
      return f(integral_constant<size_t, 2>());
    case 3:
      return f(integral_constant<size_t, 3>());
    case 4:
      return f(integral_constant<size_t, 4>());
    case 5:
      return f(integral_constant<size_t, 5>());
    case 6:
      return f(integral_constant<size_t, 6>());
    default:
      break;
  }
  if constexpr (kMaxTileRows == 12) {
    switch (rows) {
      case 7:
        return f(integral_constant<size_t, 7>());
      case 8:
        return f(integral_constant<size_t, 8>());
      case 9:
        return f(integral_constant<size_t, 9>());
      case 10:
        return f(integral_constant<size_t, 10>());
      case 11:
        return f(integral_constant<size_t, 11>());
      default:
        return f(integral_constant<size_t, 12>());
    }
  }
}

// Rows of the next tile when `rows` are left: never leaves a remainder of one or two.
HWY_INLINE size_t tile_rows(size_t rows) {
  if (rows <= kMaxTileRows) return rows;
  return rows < 2 * kMaxTileRows ? (rows + 1) / 2 : kMaxTileRows;
}

// Vectors side by side that give a tile of kRows rows about 8 to 12 accumulators.
template <size_t kRows>
inline constexpr size_t kTileBlocks = kRows == 1   ? 4
                                      : kRows <= 3 ? 2
                                                   : 1;

// s[r][16 * j + i] = sum over head_dim of q[r] * key i of block j, for num_blocks blocks of one
// split. k: pointers to [head_dim][16]. s has leading dimension kKvSplit.
template <size_t kRows, class T>
HWY_INLINE void score_tile(const float* q, size_t head_dim, const T* const* k, size_t num_blocks,
                           float* s) {
  const Wide d;
  const auto run = [&](auto blocks, size_t j) KEEL_INLINE_LAMBDA {
    constexpr size_t kVecs = decltype(blocks)::value * kBlockVecs;
    constexpr std::make_index_sequence<kRows * kVecs> kAll;
    WideVec c[kRows * kVecs];
    tile_zero(d, c, kAll);
    tile_run<kRows, kVecs, kBlockVecs>(d, TileA{q, head_dim, 1}, k + j, kKvBlock, head_dim, c);
    float* out = s + j * kKvBlock;
    tile_each<kVecs>(
        c,
        [&](size_t r, size_t n, WideVec sum)
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
    f(Wide(), std::integral_constant<size_t, kBlocks * kBlockVecs>(), col);
  if constexpr (kBlocks > 1) {
    for (; col + 16 <= head_dim; col += 16)
      f(Wide(), std::integral_constant<size_t, kBlockVecs>(), col);
  }
  if (col < head_dim) f(Half(), std::integral_constant<size_t, 8 / hn::MaxLanes(Half())>(), col);
}

// sum over keys [0, num_keys) of w[r][key] * row key of v. v: pointers to [16][head_dim], one for
// each block; w has leading dimension kKvSplit. finish(lane tag, row, column, sum) takes the sums.
template <size_t kRows, class T, class F>
HWY_INLINE void value_tile(const float* w, size_t num_keys, const T* const* v, size_t head_dim,
                           F&& finish) {
  for_columns<kRows>(head_dim, [&](auto d, auto vecs, size_t col) KEEL_INLINE_LAMBDA {
    constexpr size_t kVecs = decltype(vecs)::value;
    constexpr std::make_index_sequence<kRows * kVecs> kAll;
    using V = hn::Vec<decltype(d)>;
    V c[kRows * kVecs];
    tile_zero(d, c, kAll);
    for (size_t j = 0; j * kKvBlock < num_keys; ++j) {
      const T* const base = v[j] + col;
      const size_t keys = std::min<size_t>(kKvBlock, num_keys - j * kKvBlock);
      tile_run<kRows, kVecs, kVecs>(d, TileA{w + j * kKvBlock, kKvSplit, 1}, &base, head_dim, keys,
                                    c);
    }
    tile_each<kVecs>(
        c,
        [&](size_t r, size_t n, V sum)
            KEEL_INLINE_LAMBDA { finish(d, r, col + n * hn::MaxLanes(d), sum); },
        kAll);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace keel::ops
HWY_AFTER_NAMESPACE();

#endif
