#include "keel/ops/swiglu/swiglu_kernels.h"

#include <algorithm>

#include "keel/base/thread_pool.h"

#include "keel/ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "keel/ops/swiglu/swiglu_cpu.cc"
#include <hwy/foreach_target.h>
// After foreach_target, which includes this file once for each target.
#include "keel/ops/row_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::ops::HWY_NAMESPACE {
namespace {  // other kernel files use the same names

template <class D, class V = hn::Vec<D>>
HWY_INLINE V sigmoid(D d, V x) {
  const auto one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, exp_f32(d, hn::Neg(x))));
}

template <bool kRound>
void forward_row(const float* HWY_RESTRICT gate, const float* HWY_RESTRICT up, int64_t n,
                 float* HWY_RESTRICT y) {
  const D8 d;
  for (int64_t i = 0; i < n; i += hn::Lanes(d)) {
    const auto g = hn::LoadU(d, gate + i);
    const auto silu = maybe_round<kRound>(d, hn::Mul(g, sigmoid(d, g)));
    hn::StoreU(maybe_round<kRound>(d, hn::Mul(silu, hn::LoadU(d, up + i))), d, y + i);
  }
}

void forward_rows(const float* gate_up, int64_t begin, int64_t end, int64_t n, bool round,
                  float* y) {
  for (int64_t r = begin; r < end; ++r) {
    const float* gate = gate_up + r * 2 * n;
    if (round) {
      forward_row<true>(gate, gate + n, n, y + r * n);
    } else {
      forward_row<false>(gate, gate + n, n, y + r * n);
    }
  }
}

// No restrict: the gradient may overwrite gate and up in place.
void backward_rows(const float* gate_up, const float* dy, int64_t begin, int64_t end, int64_t n,
                   float* d_gate_up) {
  const D8 d;
  const auto one = hn::Set(d, 1.0f);
  for (int64_t r = begin; r < end; ++r) {
    const float* gate = gate_up + r * 2 * n;
    float* out = d_gate_up + r * 2 * n;
    for (int64_t i = 0; i < n; i += hn::Lanes(d)) {
      const auto g = hn::LoadU(d, gate + i);
      const auto u = hn::LoadU(d, gate + n + i);
      const auto go = hn::LoadU(d, dy + r * n + i);
      const auto s = sigmoid(d, g);
      const auto silu = hn::Mul(g, s);
      // d silu / d g = s * (1 + g * (1 - s))
      const auto slope = hn::Mul(s, hn::MulAdd(g, hn::Sub(one, s), one));
      hn::StoreU(hn::Mul(hn::Mul(go, u), slope), d, out + i);
      hn::StoreU(hn::Mul(go, silu), d, out + n + i);
    }
  }
}

}  // namespace
}  // namespace keel::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keel::ops {
HWY_EXPORT(forward_rows);
HWY_EXPORT(backward_rows);

namespace {
// About 16K values a task, so that a decode step stays on the calling thread.
int64_t rows_per_task(int64_t n) { return std::max<int64_t>(1, 16384 / n); }
}  // namespace

void swiglu_forward(const float* gate_up, int64_t m, int64_t n, bool round_bf16, float* y) {
  const int64_t step = rows_per_task(n);
  const auto rows = HWY_DYNAMIC_DISPATCH(forward_rows);
  compute_pool().parallel_for((m + step - 1) / step, [&](int64_t c, int) {
    rows(gate_up, c * step, std::min(m, (c + 1) * step), n, round_bf16, y);
  });
}

void swiglu_backward(const float* gate_up, const float* dy, int64_t m, int64_t n,
                     float* d_gate_up) {
  const int64_t step = rows_per_task(n);
  const auto rows = HWY_DYNAMIC_DISPATCH(backward_rows);
  compute_pool().parallel_for((m + step - 1) / step, [&](int64_t c, int) {
    rows(gate_up, dy, c * step, std::min(m, (c + 1) * step), n, d_gate_up);
  });
}

}  // namespace keel::ops
#endif
