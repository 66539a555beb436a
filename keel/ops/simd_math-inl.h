// Highway helpers shared by kernels. Per-target include guard, as Highway's -inl headers need it.
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#if defined(KEEL_OPS_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_OPS_SIMD_MATH_INL_H_
#undef KEEL_OPS_SIMD_MATH_INL_H_
#else
#define KEEL_OPS_SIMD_MATH_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace keel::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Eight lanes on every x86 target: the order of sums is the same with AVX2 and AVX-512.
using D8 = hn::CappedTag<float, 8>;

// Rounds f32 lanes to the nearest bf16 value (ties to even), kept as f32. NaN stays NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V round_bf16(D d, V v) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, v);
  const auto lsb = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded =
      hn::And(hn::Add(hn::Add(bits, hn::Set(du, 0x7FFF)), lsb), hn::Set(du, 0xFFFF0000u));
  return hn::IfThenElse(hn::IsNaN(v), v, hn::BitCast(d, rounded));
}

template <bool kRound, class D, class V = hn::Vec<D>>
HWY_INLINE V maybe_round(D d, V v) {
  if constexpr (kRound) return round_bf16(d, v);
  return v;
}

}  // namespace keel::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
