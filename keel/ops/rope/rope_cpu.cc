#include "keel/ops/rope/rope_kernels.h"

#include <algorithm>
#include <cmath>

#include "keel/base/thread_pool.h"

#include "keel/ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "keel/ops/rope/rope_cpu.cc"
#include <hwy/foreach_target.h>
// After foreach_target, which includes this file once for each target.
#include "keel/ops/row_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::ops::HWY_NAMESPACE {
namespace {  // other kernel files use the same names

float head_rstd(const float* x, int64_t n, float norm_dim, float eps) {
  const D8 d;
  auto sum = hn::Zero(d);
  for (int64_t i = 0; i < n; i += hn::Lanes(d)) {
    const auto v = hn::LoadU(d, x + i);
    sum = hn::MulAdd(v, v, sum);
  }
  return 1.0f / std::sqrt(hn::GetLane(hn::SumOfLanes(d, sum)) / norm_dim + eps);
}

template <bool kRound>
void head_forward(const float* x, const float* norm, float norm_dim, float eps, const float* cosine,
                  const float* sine, int64_t n, float* y) {
  const D8 d;
  const int64_t half = n / 2;
  const float r = norm != nullptr ? head_rstd(x, n, norm_dim, eps) : 1.0f;
  const auto load = [&](int64_t i) HWY_ATTR {
    const auto v = hn::LoadU(d, x + i);
    if (norm == nullptr) return v;
    const auto normed = maybe_round<kRound>(d, hn::Mul(v, hn::Set(d, r)));
    return maybe_round<kRound>(d, hn::Mul(normed, hn::LoadU(d, norm + i)));
  };
  for (int64_t i = 0; i < half; i += hn::Lanes(d)) {
    const auto a = load(i);
    const auto b = load(half + i);
    const auto c = hn::LoadU(d, cosine + i);
    const auto s = hn::LoadU(d, sine + i);
    hn::StoreU(maybe_round<kRound>(d, hn::NegMulAdd(b, s, hn::Mul(a, c))), d, y + i);
    hn::StoreU(maybe_round<kRound>(d, hn::MulAdd(a, s, hn::Mul(b, c))), d, y + half + i);
  }
}

void forward_head(const float* x, const float* norm, float norm_dim, float eps, const float* cosine,
                  const float* sine, int64_t n, bool round, float* y) {
  if (round) {
    head_forward<true>(x, norm, norm_dim, eps, cosine, sine, n, y);
  } else {
    head_forward<false>(x, norm, norm_dim, eps, cosine, sine, n, y);
  }
}

// dnorm: [n] or null, added to.
void backward_head(const float* x, const float* norm, float norm_dim, float eps,
                   const float* cosine, const float* sine, int64_t n, const float* dy, float* dx,
                   float* dnorm) {
  const D8 d;
  const int64_t half = n / 2;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t i = 0; i < half; i += lanes) {  // the inverse rotation
    const auto a = hn::LoadU(d, dy + i);
    const auto b = hn::LoadU(d, dy + half + i);
    const auto c = hn::LoadU(d, cosine + i);
    const auto s = hn::LoadU(d, sine + i);
    hn::StoreU(hn::MulAdd(b, s, hn::Mul(a, c)), d, dx + i);
    hn::StoreU(hn::NegMulAdd(a, s, hn::Mul(b, c)), d, dx + half + i);
  }
  if (norm == nullptr) return;
  const auto r = hn::Set(d, head_rstd(x, n, norm_dim, eps));
  auto dot = hn::Zero(d);
  for (int64_t i = 0; i < n; i += lanes) {
    const auto normed = hn::Mul(hn::LoadU(d, x + i), r);
    const auto g = hn::LoadU(d, dx + i);
    if (dnorm != nullptr) hn::StoreU(hn::MulAdd(g, normed, hn::LoadU(d, dnorm + i)), d, dnorm + i);
    dot = hn::MulAdd(hn::Mul(g, hn::LoadU(d, norm + i)), normed, dot);
  }
  const auto mean = hn::Set(d, hn::GetLane(hn::SumOfLanes(d, dot)) / norm_dim);
  for (int64_t i = 0; i < n; i += lanes) {
    const auto normed = hn::Mul(hn::LoadU(d, x + i), r);
    const auto g = hn::Mul(hn::LoadU(d, dx + i), hn::LoadU(d, norm + i));
    hn::StoreU(hn::Mul(r, hn::NegMulAdd(normed, mean, g)), d, dx + i);
  }
}

}  // namespace
}  // namespace keel::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keel::ops {
HWY_EXPORT(forward_head);
HWY_EXPORT(backward_head);

namespace {
constexpr int64_t kRows = 32;  // rows per task; also the fixed cut of the norm gradients' sums
}  // namespace

void RopeTable::reserve(int64_t count) {
  const int64_t half = half_dim();
  const int64_t have = half == 0 ? count : static_cast<int64_t>(cos_.size()) / half;
  if (count <= have) return;
  count = std::max(count, have * 2);
  cos_.resize(static_cast<size_t>(count * half));
  sin_.resize(static_cast<size_t>(count * half));
  for (int64_t p = have; p < count; ++p) {
    for (int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(p) * inv_freq_[static_cast<size_t>(i)];
      cos_[static_cast<size_t>(p * half + i)] =
          static_cast<float>(std::cos(static_cast<double>(angle)));
      sin_[static_cast<size_t>(p * half + i)] =
          static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
}

void rope_forward(const RopeShape& shape, const RopeTable& table, const int32_t* positions,
                  const float* q_norm, const float* k_norm, const float* qkv, int64_t m, float* q,
                  float* k) {
  const int64_t dim = shape.head_dim;
  const int64_t ld = (shape.num_heads + 2 * shape.num_kv_heads) * dim;
  const auto norm_dim = static_cast<float>(shape.norm_dim);
  const auto head = HWY_DYNAMIC_DISPATCH(forward_head);
  compute_pool().parallel_for((m + kRows - 1) / kRows, [&](int64_t c, int) {
    for (int64_t r = c * kRows; r < std::min(m, (c + 1) * kRows); ++r) {
      const float* cosine = table.cos(positions[r]);
      const float* sine = table.sin(positions[r]);
      const float* x = qkv + r * ld;
      for (int h = 0; h < shape.num_heads; ++h, x += dim) {
        head(x, q_norm, norm_dim, shape.norm_eps, cosine, sine, dim, shape.round_bf16,
             q + (r * shape.num_heads + h) * dim);
      }
      for (int h = 0; h < shape.num_kv_heads; ++h, x += dim) {
        head(x, k_norm, norm_dim, shape.norm_eps, cosine, sine, dim, shape.round_bf16,
             k + (r * shape.num_kv_heads + h) * dim);
      }
    }
  });
}

void rope_backward(const RopeShape& shape, const RopeTable& table, const int32_t* positions,
                   const float* q_norm, const float* k_norm, const float* qkv, const float* dq,
                   const float* dk, int64_t m, float* dqkv, float* dq_norm, float* dk_norm) {
  const int64_t dim = shape.head_dim;
  const int64_t ld = (shape.num_heads + 2 * shape.num_kv_heads) * dim;
  const int64_t chunks = (m + kRows - 1) / kRows;
  const bool norms = dq_norm != nullptr || dk_norm != nullptr;
  std::vector<float> parts(norms ? static_cast<size_t>(chunks * 2 * dim) : 0, 0.0f);
  const auto norm_dim = static_cast<float>(shape.norm_dim);
  const auto head = HWY_DYNAMIC_DISPATCH(backward_head);
  compute_pool().parallel_for(chunks, [&](int64_t c, int) {
    float* part_q = norms ? parts.data() + c * 2 * dim : nullptr;
    float* part_k = norms ? part_q + dim : nullptr;
    for (int64_t r = c * kRows; r < std::min(m, (c + 1) * kRows); ++r) {
      const float* cosine = table.cos(positions[r]);
      const float* sine = table.sin(positions[r]);
      int64_t at = r * ld;
      for (int h = 0; h < shape.num_heads; ++h, at += dim) {
        head(qkv + at, q_norm, norm_dim, shape.norm_eps, cosine, sine, dim,
             dq + (r * shape.num_heads + h) * dim, dqkv + at, part_q);
      }
      for (int h = 0; h < shape.num_kv_heads; ++h, at += dim) {
        head(qkv + at, k_norm, norm_dim, shape.norm_eps, cosine, sine, dim,
             dk + (r * shape.num_kv_heads + h) * dim, dqkv + at, part_k);
      }
    }
  });
  for (int64_t c = 0; norms && c < chunks; ++c) {
    const float* part = parts.data() + c * 2 * dim;
    for (int64_t i = 0; i < dim; ++i) {
      if (dq_norm != nullptr) dq_norm[i] += part[i];
      if (dk_norm != nullptr) dk_norm[i] += part[dim + i];
    }
  }
}

}  // namespace keel::ops
#endif
