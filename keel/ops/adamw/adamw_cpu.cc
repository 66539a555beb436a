#include "keel/ops/adamw/adamw_kernels.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "keel/base/thread_pool.h"

#ifndef KEEL_OPS_ADAMW_CONSTANTS_
#define KEEL_OPS_ADAMW_CONSTANTS_
namespace keel::ops {
struct AdamWConstants {
  float beta1, beta2, one_minus_beta1, one_minus_beta2;
  float grad_scale, decay, step_size, inv_sqrt_correction2, eps;
};
}  // namespace keel::ops
#endif

#include "keel/ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "keel/ops/adamw/adamw_cpu.cc"
#include <hwy/foreach_target.h>
// After foreach_target, which includes this file once for each target.
#include "keel/ops/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::ops::HWY_NAMESPACE {
namespace {  // other kernel files use the same names

template <class D>
HWY_INLINE void update(D d, const AdamWConstants& c, float* p, float* g, float* m, float* v,
                       bool clear) {
  const auto grad = hn::Mul(hn::LoadU(d, g), hn::Set(d, c.grad_scale));
  const auto m1 = hn::MulAdd(hn::Set(d, c.one_minus_beta1), grad,
                             hn::Mul(hn::Set(d, c.beta1), hn::LoadU(d, m)));
  const auto v1 = hn::MulAdd(hn::Mul(hn::Set(d, c.one_minus_beta2), grad), grad,
                             hn::Mul(hn::Set(d, c.beta2), hn::LoadU(d, v)));
  const auto denom =
      hn::MulAdd(hn::Sqrt(v1), hn::Set(d, c.inv_sqrt_correction2), hn::Set(d, c.eps));
  const auto decayed = hn::Mul(hn::LoadU(d, p), hn::Set(d, c.decay));
  hn::StoreU(hn::NegMulAdd(hn::Set(d, c.step_size), hn::Div(m1, denom), decayed), d, p);
  hn::StoreU(m1, d, m);
  hn::StoreU(v1, d, v);
  if (clear) hn::StoreU(hn::Zero(d), d, g);
}

void update_range(const AdamWConstants& c, int64_t n, float* p, float* g, float* m, float* v,
                  bool clear) {
  const D8 d;
  const hn::CappedTag<float, 1> one;
  const int64_t lanes = hn::Lanes(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) update(d, c, p + i, g + i, m + i, v + i, clear);
  for (; i < n; ++i) update(one, c, p + i, g + i, m + i, v + i, clear);
}

double square_range(const float* x, int64_t n) {
  double sum[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int j = 0; j < 8; ++j) sum[j] += static_cast<double>(x[i + j]) * x[i + j];
  }
  for (; i < n; ++i) sum[0] += static_cast<double>(x[i]) * x[i];
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

}  // namespace
}  // namespace keel::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keel::ops {
HWY_EXPORT(update_range);
HWY_EXPORT(square_range);

namespace {
constexpr int64_t kBlock = 1 << 16;
}  // namespace

void adamw_step(const AdamWStep& s, int64_t n, float* p, float* g, float* m, float* v,
                bool clear_grad) {
  const double correction1 =
      1.0 - std::pow(static_cast<double>(s.beta1), static_cast<double>(s.step));
  const double correction2 =
      1.0 - std::pow(static_cast<double>(s.beta2), static_cast<double>(s.step));
  const AdamWConstants c = {s.beta1,
                            s.beta2,
                            static_cast<float>(1.0 - static_cast<double>(s.beta1)),
                            static_cast<float>(1.0 - static_cast<double>(s.beta2)),
                            s.grad_scale,
                            static_cast<float>(1.0 - static_cast<double>(s.lr) * s.weight_decay),
                            static_cast<float>(s.lr / correction1),
                            static_cast<float>(1.0 / std::sqrt(correction2)),
                            s.eps};
  const auto range = HWY_DYNAMIC_DISPATCH(update_range);
  compute_pool().parallel_for((n + kBlock - 1) / kBlock, [&](int64_t b, int) {
    const int64_t at = b * kBlock;
    range(c, std::min(kBlock, n - at), p + at, g + at, m + at, v + at, clear_grad);
  });
}

double sum_of_squares(const float* x, int64_t n) {
  std::vector<double> parts(static_cast<size_t>((n + kBlock - 1) / kBlock));
  const auto range = HWY_DYNAMIC_DISPATCH(square_range);
  compute_pool().parallel_for(static_cast<int64_t>(parts.size()), [&](int64_t b, int) {
    const int64_t at = b * kBlock;
    parts[static_cast<size_t>(b)] = range(x + at, std::min(kBlock, n - at));
  });
  double sum = 0;
  for (double p : parts) sum += p;
  return sum;
}

}  // namespace keel::ops
#endif
