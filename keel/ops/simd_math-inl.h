// SIMD helpers shared by the kernels (per target, see hwy/foreach_target.h). Every function is
// built from exact operations and fused multiply-adds in a fixed order, so it gives the same bits
// with 4, 8 or 16 lanes.
#include "keel/ops/simd_targets.h"  // first: chooses the targets
#if defined(KEEL_OPS_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_OPS_SIMD_MATH_INL_H_
#undef KEEL_OPS_SIMD_MATH_INL_H_
#else
#define KEEL_OPS_SIMD_MATH_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <utility>

HWY_BEFORE_NAMESPACE();
namespace keel::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
using U32 = hn::Rebind<uint32_t, F32>;
using I32 = hn::Rebind<int32_t, F32>;
using VF = hn::Vec<F32>;
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(F32()));
inline constexpr int kVecs = 16 / kLanes;  // vectors in 16 columns

// Calls f(integral_constant 0), ..., f(N - 1) without a loop: GCC keeps arrays indexed by
// constants in registers, arrays indexed by an unrolled loop's counter in memory.
template <class F, size_t... I>
HWY_INLINE void unroll_impl(F&& f, std::index_sequence<I...>) {
  (f(std::integral_constant<int, static_cast<int>(I)>()), ...);
}
template <int N, class F>
HWY_INLINE void unroll(F&& f) {
  unroll_impl(static_cast<F&&>(f), std::make_index_sequence<N>());
}

// Eight lanes on every x86 target: row-wise ops take any multiple of eight columns, and their sums
// have one order with AVX2 and AVX-512.
using D8 = hn::CappedTag<float, 8>;

// Nearest even bf16, kept in f32 (any number of lanes). NaN stays NaN.
template <class V>
HWY_INLINE V round_bf16(V v) {
  const hn::DFromV<V> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const auto u = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1u));
  const auto rounded =
      hn::And(hn::Add(hn::Add(u, odd), hn::Set(du, 0x7fffu)), hn::Set(du, 0xffff0000u));
  return hn::IfThenElse(hn::IsNaN(v), v, hn::BitCast(d, rounded));
}

// exp(x), about 1 ulp; 0 below -87.33 (so no denormals), exp(88.37) above. Reduction by ln 2 in two
// steps and the degree-7 minimax polynomial of the Cephes library (expf).
template <class D>
HWY_INLINE hn::Vec<D> exp_f32(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  const auto lowest = hn::Set(d, -87.33f);
  // Constants first: x86 then lets a NaN in x through.
  const auto clamped = hn::Min(hn::Set(d, 88.37f), hn::Max(lowest, x));
  // x / ln 2 rounded to an integer, which stands in the low bits of the sum with 1.5 * 2^23.
  const auto shift = hn::Set(d, 12582912.0f);
  const auto shifted = hn::MulAdd(clamped, hn::Set(d, 1.44269504f), shift);
  const auto n = hn::Sub(shifted, shift);
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), clamped);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  auto p = hn::Set(d, 1.9875691500e-4f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::MulAdd(p, hn::Mul(r, r), hn::Add(r, hn::Set(d, 1.0f)));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, shifted));
  const auto y = hn::BitCast(d, hn::Add(hn::BitCast(di, p), exponent));
  return hn::IfThenZeroElse(hn::Lt(x, lowest), y);
}
HWY_INLINE VF exp_f32(VF x) { return exp_f32(F32(), x); }

}  // namespace keel::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
