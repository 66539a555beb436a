// The register tile that all matrix products share: R rows times P panels of 16 columns, one fused
// multiply-add chain per output in k order. Also the leaf tree.
#include "keel/ops/simd_targets.h"  // first: chooses the targets
#if defined(KEEL_OPS_LINEAR_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_OPS_LINEAR_TILE_INL_H_
#undef KEEL_OPS_LINEAR_TILE_INL_H_
#else
#define KEEL_OPS_LINEAR_TILE_INL_H_
#endif

#include "keel/ops/linear/linear_split.h"
#include "keel/ops/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::ops::HWY_NAMESPACE {

// Panels that a tile of R rows takes at once, so that at least 8 sums run side by side.
inline constexpr int kWide = kLanes == 16 ? 2 : 1;  // AVX-512: a panel is one register
constexpr int tile_panels(int rows) {
  return rows == 1 ? 4 * kWide : rows <= 3 ? 2 * kWide : kWide;
}

template <int R, int P>
struct Tile {
  VF v[R * P * kVecs];
  HWY_INLINE VF& at(int r, int p, int i) { return v[(r * P + p) * kVecs + i]; }
};

// The 16 values of one k-row of a panel.
HWY_INLINE void load_panel_row(const float* p, VF* out) {
  const F32 d;
  unroll<kVecs>([&](auto i) { out[i] = hn::LoadU(d, p + i * kLanes); });
}

HWY_INLINE void load_panel_row(const uint16_t* p, VF* out) {
  using Half = hn::CappedTag<uint32_t, (kLanes < 8 ? kLanes : 8)>;
  const Half du;
  const hn::Rebind<float, Half> df;
  constexpr int kHalfLanes = static_cast<int>(hn::MaxLanes(Half()));
  constexpr int kHalf = 8 / kHalfLanes;  // vectors in 8 columns
  const auto* words = reinterpret_cast<const uint32_t*>(p);
  unroll<kHalf>([&](auto i) {
    const auto both = hn::LoadU(du, words + i * kHalfLanes);
    const auto low = hn::BitCast(df, hn::ShiftLeft<16>(both));
    const auto high = hn::BitCast(df, hn::And(both, hn::Set(du, 0xffff0000u)));
#if HWY_TARGET == HWY_AVX3
    out[0] = hn::Combine(F32(), high, low);
#else
    out[i] = low;
    out[i + kHalf] = high;
#endif
  });
}

template <int R, int P>
HWY_INLINE void clear(Tile<R, P>& acc) {
  const F32 d;
  unroll<R * P * kVecs>([&](auto i) { acc.v[i] = hn::Zero(d); });
}

// acc += x[0..R, 0..length] * b;  panel p of b starts at b + p * panel_stride, one k-row is 16
// values.
template <int R, int P, class T>
HWY_INLINE void multiply(const float* x, int64_t ldx, const T* b, int64_t panel_stride,
                         int64_t length, Tile<R, P>& acc) {
  const F32 d;
  Tile<R, P> sum = acc;  // its address never leaves this function, so it stays in registers
  const float* rows[R];
  unroll<R>([&](auto r) { rows[r] = x + r * ldx; });
  for (int64_t k = 0; k < length; ++k) {
    VF w[P * kVecs];
    unroll<P>([&](auto p) { load_panel_row(b + p * panel_stride + k * kPanel, w + p * kVecs); });
    unroll<R>([&](auto r) {
      const VF a = hn::Set(d, rows[r][k]);
      unroll<P * kVecs>([&](auto i) {
        sum.v[r * P * kVecs + i] = hn::MulAdd(a, w[i], sum.v[r * P * kVecs + i]);
      });
    });
  }
  acc = sum;
}

// acc = stored + acc (Add) or stored = acc;  row r of the store starts at to + r * stride.
template <int R, int P>
HWY_INLINE void add_stored(const float* from, int64_t stride, Tile<R, P>& acc) {
  const F32 d;
  unroll<R>([&](auto r) {
    unroll<P * kVecs>([&](auto i) {
      VF& a = acc.v[r * P * kVecs + i];
      a = hn::Add(hn::LoadU(d, from + r * stride + i * kLanes), a);
    });
  });
}
template <int R, int P>
HWY_INLINE void store(const Tile<R, P>& acc, float* to, int64_t stride) {
  const F32 d;
  unroll<R>([&](auto r) {
    unroll<P * kVecs>(
        [&](auto i) { hn::StoreU(acc.v[r * P * kVecs + i], d, to + r * stride + i * kLanes); });
  });
}
template <int R, int P>
HWY_INLINE void load(const float* from, int64_t stride, Tile<R, P>& acc) {
  const F32 d;
  unroll<R>([&](auto r) {
    unroll<P * kVecs>(
        [&](auto i) { acc.v[r * P * kVecs + i] = hn::LoadU(d, from + r * stride + i * kLanes); });
  });
}

// Partial sums of the leaf tree, a binary counter: leaf l meets one stored sum for each trailing
// one bit of l, then waits itself. Level j of row r lies at data + j * level_stride + r * stride.
struct LeafTree {
  float* data;
  int64_t level_stride;
  int64_t stride;
};

// Merges leaf's sum with what waits; true if the sum is now complete (in acc), else it was stored.
template <int R, int P>
HWY_INLINE bool merge_leaf(int leaf, int num_leaves, const LeafTree& tree, float* at,
                           Tile<R, P>& acc) {
  for (int bits = leaf; bits & 1; bits >>= 1) {
    add_stored(at, tree.stride, acc);
    at += tree.level_stride;
  }
  if (leaf + 1 == num_leaves) return true;
  store(acc, at, tree.stride);
  return false;
}

}  // namespace keel::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
