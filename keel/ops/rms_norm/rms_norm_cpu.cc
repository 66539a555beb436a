#include "keel/ops/rms_norm/rms_norm_kernels.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "keel/base/thread_pool.h"

#include "keel/ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "keel/ops/rms_norm/rms_norm_cpu.cc"
#include <hwy/foreach_target.h>
// After foreach_target, which includes this file once for each target.
#include "keel/ops/row_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::ops::HWY_NAMESPACE {
namespace {  // other kernel files use the same names

template <bool kRound>
void norm_row(const float* HWY_RESTRICT x, const float* HWY_RESTRICT w, int64_t n, float eps,
              float* HWY_RESTRICT y, float* rstd) {
  const D8 d;
  const int64_t lanes = hn::Lanes(d);
  auto sum = hn::Zero(d);
  for (int64_t i = 0; i < n; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    sum = hn::MulAdd(v, v, sum);
  }
  const float mean = hn::GetLane(hn::SumOfLanes(d, sum)) / static_cast<float>(n);
  const float r = 1.0f / std::sqrt(mean + eps);
  if (rstd != nullptr) *rstd = r;
  const auto vr = hn::Set(d, r);
  for (int64_t i = 0; i < n; i += lanes) {
    const auto normed = maybe_round<kRound>(d, hn::Mul(hn::LoadU(d, x + i), vr));
    hn::StoreU(maybe_round<kRound>(d, hn::Mul(normed, hn::LoadU(d, w + i))), d, y + i);
  }
}

void forward_rows(const float* x, int64_t ldx, const float* w, int64_t begin, int64_t end,
                  int64_t n, float eps, bool round, float* y, int64_t ldy, float* rstd) {
  for (int64_t r = begin; r < end; ++r) {
    float* out = rstd != nullptr ? rstd + r : nullptr;
    if (round) {
      norm_row<true>(x + r * ldx, w, n, eps, y + r * ldy, out);
    } else {
      norm_row<false>(x + r * ldx, w, n, eps, y + r * ldy, out);
    }
  }
}

// dw_part: [n] or null, added to.
void backward_rows(const float* x, int64_t ldx, const float* w, const float* rstd, const float* dy,
                   int64_t lddy, int64_t begin, int64_t end, int64_t n, float* dx, int64_t lddx,
                   float* dw_part) {
  const D8 d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t r = begin; r < end; ++r) {
    const float* xr = x + r * ldx;
    const float* gr = dy + r * lddy;
    float* out = dx + r * lddx;
    const auto vr = hn::Set(d, rstd[r]);
    auto dot = hn::Zero(d);
    for (int64_t i = 0; i < n; i += lanes) {
      const auto normed = hn::Mul(hn::LoadU(d, xr + i), vr);
      dot = hn::MulAdd(hn::Mul(hn::LoadU(d, gr + i), hn::LoadU(d, w + i)), normed, dot);
    }
    const auto mean = hn::Set(d, hn::GetLane(hn::SumOfLanes(d, dot)) / static_cast<float>(n));
    for (int64_t i = 0; i < n; i += lanes) {
      const auto normed = hn::Mul(hn::LoadU(d, xr + i), vr);
      const auto g = hn::LoadU(d, gr + i);
      if (dw_part != nullptr) {
        hn::StoreU(hn::MulAdd(g, normed, hn::LoadU(d, dw_part + i)), d, dw_part + i);
      }
      const auto gw = hn::Mul(g, hn::LoadU(d, w + i));
      hn::StoreU(hn::Mul(vr, hn::NegMulAdd(normed, mean, gw)), d, out + i);
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
// Rows per task; also the fixed cut of the sum over rows in dw.
constexpr int64_t kRows = 64;
}  // namespace

void rms_norm_forward(const float* x, int64_t ldx, const float* w, int64_t m, int64_t n, float eps,
                      bool round_bf16, float* y, int64_t ldy, float* rstd) {
  const auto rows = HWY_DYNAMIC_DISPATCH(forward_rows);
  compute_pool().parallel_for((m + kRows - 1) / kRows, [&](int64_t c, int) {
    rows(x, ldx, w, c * kRows, std::min(m, (c + 1) * kRows), n, eps, round_bf16, y, ldy, rstd);
  });
}

void rms_norm_backward(const float* x, int64_t ldx, const float* w, const float* rstd,
                       const float* dy, int64_t lddy, int64_t m, int64_t n, float* dx, int64_t lddx,
                       float* dw) {
  const int64_t chunks = (m + kRows - 1) / kRows;
  std::vector<float> parts(dw != nullptr ? static_cast<size_t>(chunks * n) : 0, 0.0f);
  const auto rows = HWY_DYNAMIC_DISPATCH(backward_rows);
  compute_pool().parallel_for(chunks, [&](int64_t c, int) {
    rows(x, ldx, w, rstd, dy, lddy, c * kRows, std::min(m, (c + 1) * kRows), n, dx, lddx,
         dw != nullptr ? parts.data() + c * n : nullptr);
  });
  if (dw == nullptr) return;
  for (int64_t c = 0; c < chunks; ++c) {
    for (int64_t i = 0; i < n; ++i) dw[i] += parts[static_cast<size_t>(c * n + i)];
  }
}

}  // namespace keel::ops
#endif
