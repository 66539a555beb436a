#include "keel/ops/bench_limits.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "keel/base/thread_pool.h"
#include "keel/ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "keel/ops/bench_limits.cc"
#include <hwy/foreach_target.h>
// After foreach_target:
#include "keel/ops/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::ops::HWY_NAMESPACE {
namespace {

constexpr int kChains = 12;  // latency 4-5, two units

float fma_loop(int64_t count) {
  const F32 d;
  VF sums[kChains];
  unroll<kChains>([&](auto i) { sums[i] = hn::Set(d, 0.001f * (i + 1)); });
  const VF a = hn::Set(d, 0.999f);
  const VF b = hn::Set(d, 0.0001f);
  for (int64_t n = 0; n < count; ++n)
    unroll<kChains>([&](auto i) { sums[i] = hn::MulAdd(sums[i], a, b); });
  VF total = hn::Zero(d);
  unroll<kChains>([&](auto i) { total = hn::Add(total, sums[i]); });
  return hn::GetLane(total);
}

float read_loop(const float* data, int64_t count) {
  const F32 d;
  VF sums[8];
  unroll<8>([&](auto i) { sums[i] = hn::Zero(d); });
  for (int64_t n = 0; n + 8 * kLanes <= count; n += 8 * kLanes)
    unroll<8>([&](auto i) { sums[i] = hn::Add(sums[i], hn::LoadU(d, data + n + i * kLanes)); });
  VF total = hn::Zero(d);
  unroll<8>([&](auto i) { total = hn::Add(total, sums[i]); });
  return hn::GetLane(total);
}

double fma_flops_per_count() { return 2.0 * kChains * kLanes; }

}  // namespace
}  // namespace keel::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keel::ops {
namespace {

HWY_EXPORT(fma_loop);
HWY_EXPORT(read_loop);
HWY_EXPORT(fma_flops_per_count);

// Best of some regions in which every thread runs work(thread): a limit is what can be had.
template <class Work>
double best_seconds(int repeats, Work&& work) {
  double best = 1e9;
  for (int r = 0; r < repeats; ++r) {
    const auto start = std::chrono::steady_clock::now();
    compute_pool().parallel_for(compute_pool().num_threads(),
                                [&](int64_t index, int) { work(index); });
    const std::chrono::duration<double> t = std::chrono::steady_clock::now() - start;
    best = std::min(best, t.count());
  }
  return best;
}

}  // namespace

double measure_fma_gflops() {
  constexpr int64_t kCount = 2000000;
  const auto loop = HWY_DYNAMIC_DISPATCH(fma_loop);
  const int threads = compute_pool().num_threads();
  std::vector<float> sink(threads);
  const double seconds = best_seconds(7, [&](int64_t t) { sink[t] = loop(kCount); });
  return threads * kCount * HWY_DYNAMIC_DISPATCH(fma_flops_per_count)() / seconds / 1e9;
}

double measure_dram_read_gb_per_s() {
  constexpr int64_t kFloats = 64 << 20;
  const auto loop = HWY_DYNAMIC_DISPATCH(read_loop);
  const int threads = compute_pool().num_threads();
  const std::vector<float> data(threads * kFloats, 1.0f);
  std::vector<float> sink(threads);
  const double seconds =
      best_seconds(5, [&](int64_t t) { sink[t] = loop(data.data() + t * kFloats, kFloats); });
  return threads * kFloats * 4.0 / seconds / 1e9;
}

}  // namespace keel::ops
#endif  // HWY_ONCE
