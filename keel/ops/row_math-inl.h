// What row-wise kernels share beyond simd_math-inl.h (per target, as that file).
#include "keel/ops/simd_math-inl.h"

#if defined(KEEL_OPS_ROW_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_OPS_ROW_MATH_INL_H_
#undef KEEL_OPS_ROW_MATH_INL_H_
#else
#define KEEL_OPS_ROW_MATH_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace keel::ops::HWY_NAMESPACE {

// The value as a bf16 model keeps it, or untouched.
template <bool kRound, class D>
HWY_INLINE hn::Vec<D> maybe_round(D, hn::Vec<D> v) {
  if constexpr (kRound) return round_bf16(v);
  return v;
}

}  // namespace keel::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
