#include "keel/ops/log_prob/log_prob_tile.h"

#include <limits>

#include "keel/ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "keel/ops/log_prob/log_prob_tile_cpu.cc"
#include <hwy/foreach_target.h>
// After foreach_target:
#include "keel/ops/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::ops::HWY_NAMESPACE {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

void scale_row(float* logits, int64_t width, float temperature) {
  const F32 d;
  const int64_t padded = (width + 15) / 16 * 16;
  for (int64_t c = width; c < padded; ++c) logits[c] = kMinusInf;
  if (temperature == 1.0f) return;
  const VF t = hn::Set(d, temperature);
  for (int64_t c = 0; c < padded; c += kLanes)
    hn::StoreU(hn::Div(hn::LoadU(d, logits + c), t), d, logits + c);
}

// Adds 16 partial sums pairwise: i with i + 8, then + 4, + 2, + 1.
float add_16(const VF* sums) {
  const F32 d;
  alignas(64) float v[16];
  unroll<kVecs>([&](auto i) { hn::Store(sums[i], d, v + i * kLanes); });
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) v[i] += v[i + half];
  return v[0];
}

TileStats row_stats(const float* logits, int64_t width) {
  const F32 d;
  VF max16 = hn::Set(d, kMinusInf);
  for (int64_t c = 0; c < width; c += kLanes) max16 = hn::Max(hn::LoadU(d, logits + c), max16);
  const float max = hn::GetLane(hn::MaxOfLanes(d, max16));
  if (max == kMinusInf) return {max, 0, 0};
  const VF m = hn::Set(d, max);
  const VF zero = hn::Zero(d);
  VF sum[kVecs];
  VF weighted[kVecs];
  for (int i = 0; i < kVecs; ++i) sum[i] = weighted[i] = zero;
  for (int64_t c = 0; c < width; c += 16) {
    unroll<kVecs>([&](auto i) {
      const VF z = hn::Sub(hn::LoadU(d, logits + c + i * kLanes), m);
      const VF e = exp_f32(z);
      sum[i] = hn::Add(sum[i], e);
      // exp = 0 selects the term away: z may be -inf.
      weighted[i] = hn::IfThenElse(hn::Eq(e, zero), weighted[i], hn::MulAdd(e, z, weighted[i]));
    });
  }
  return {max, add_16(sum), add_16(weighted)};
}

void exp_row(const float* in, int64_t count, float shift, float* out) {
  const F32 d;
  const VF s = hn::Set(d, shift);
  for (int64_t c = 0; c < count; c += kLanes)
    hn::StoreU(exp_f32(hn::Sub(hn::LoadU(d, in + c), s)), d, out + c);
}

// dl = -p * (g + h * (log p + H)) / T
void grad_row(const RowGrad& row, int64_t width, float* logits) {
  const F32 d;
  const VF lse = hn::Set(d, row.lse);
  const VF entropy = hn::Set(d, row.entropy);
  const VF g = hn::Set(d, row.d_log_prob);
  const VF h = hn::Set(d, row.d_entropy);
  const VF scale = hn::Set(d, -1.0f / row.temperature);
  const VF zero = hn::Zero(d);
  for (int64_t c = 0; c < width; c += kLanes) {
    const VF log_p = hn::Sub(hn::LoadU(d, logits + c), lse);
    const VF p = exp_f32(log_p);
    const VF factor = hn::MulAdd(h, hn::Add(log_p, entropy), g);
    const VF grad = hn::Mul(hn::Mul(p, factor), scale);
    hn::StoreU(hn::IfThenElse(hn::Eq(p, zero), zero, grad), d, logits + c);
  }
}

}  // namespace
}  // namespace keel::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keel::ops {
namespace {

HWY_EXPORT(scale_row);
HWY_EXPORT(row_stats);
HWY_EXPORT(exp_row);
HWY_EXPORT(grad_row);

}  // namespace

void scale_logits(float* logits, int64_t width, float temperature) {
  HWY_DYNAMIC_DISPATCH(scale_row)(logits, width, temperature);
}

TileStats tile_stats(const float* logits, int64_t width) {
  return HWY_DYNAMIC_DISPATCH(row_stats)(logits, width);
}

void exp_shifted(const float* in, int64_t count, float shift, float* out) {
  HWY_DYNAMIC_DISPATCH(exp_row)(in, count, shift, out);
}

void logit_grads(const RowGrad& row, int64_t width, float* logits) {
  HWY_DYNAMIC_DISPATCH(grad_row)(row, width, logits);
}

}  // namespace keel::ops
#endif  // HWY_ONCE
