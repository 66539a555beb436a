// Speed of the head: log-probs with entropy, backward, and sampling. GFLOP/s count the products
// only (forward 1, backward 3).
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <vector>

#include "keel/base/cpu.h"
#include "keel/base/thread_pool.h"
#include "keel/ops/bench_limits.h"
#include "keel/ops/isa.h"
#include "keel/ops/log_prob/log_prob_kernels.h"

namespace keel::ops {
namespace {

double best_seconds(int repeats, auto&& work) {
  double best = 1e9;
  for (int r = 0; r < repeats; ++r) {
    const auto start = std::chrono::steady_clock::now();
    work();
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

std::vector<float> random_values(int64_t count, float scale) {
  std::mt19937 rng(1);
  std::uniform_real_distribution<float> uniform(-scale, scale);
  std::vector<float> v(count);
  for (float& x : v) x = uniform(rng);
  return v;
}

struct Shape {
  int64_t k, vocab, rows;
};

void bench_shape(const Shape& s, DType dtype, double peak) {
  const auto row = random_values(s.k + s.vocab, 1);
  std::vector<float> storage(packed_elements(s.vocab, s.k));
  for (int64_t v = 0; v < s.vocab; ++v)
    pack_rows(&row[v], s.k, v, 1, s.vocab, s.k, dtype, storage.data());
  const PackedView head{storage.data(), dtype, s.vocab, s.k, num_leaves_for(s.k)};
  const auto x = random_values(s.rows * s.k, 0.1f);
  const std::vector<int32_t> targets(s.rows, 5);
  const std::vector<float> ones(s.rows, 1.0f);
  std::vector<float> log_prob(s.rows), entropy(s.rows), lse(s.rows), dx(s.rows * s.k);
  std::vector<float> dw(storage.size());
  const double flops = 2.0 * static_cast<double>(s.k * s.vocab * s.rows);
  const double forward = best_seconds(3, [&] {
    linear_log_prob_forward(head, x.data(), s.k, s.rows, targets.data(), ones.data(), {},
                            log_prob.data(), entropy.data(), lse.data());
  });
  const double backward = best_seconds(2, [&] {
    linear_log_prob_backward(head, x.data(), s.k, s.rows, targets.data(), ones.data(), {},
                             lse.data(), entropy.data(), ones.data(), ones.data(), dx.data(), s.k,
                             dw.data());
  });
  fmt::print(
      "{:>5} x {:>6} {:>4}, {:>5} rows: forward {:>4.0f} GFLOP/s ({:.0f} %), backward "
      "{:>4.0f} ({:.0f} %), {:.0f} rows/s\n",
      s.k, s.vocab, dtype == DType::kF32 ? "f32" : "bf16", s.rows, flops / forward / 1e9,
      100 * flops / forward / 1e9 / peak, 3 * flops / backward / 1e9,
      300 * flops / backward / 1e9 / peak, static_cast<double>(s.rows) / (forward + backward));
  for (const int64_t m : {1, 8, 32}) {
    fmt::print("    sample {:>2} rows:", m);
    const std::pair<const char*, SampleParams> kinds[] = {{"plain", {}},
                                                          {"greedy", {.temperature = 0}},
                                                          {"top-k 20", {.top_k = 20}},
                                                          {"top-p 0.95", {.top_p = 0.95f}}};
    for (const auto& [name, params] : kinds) {
      std::vector<SampleParams> all(m, params);
      for (int64_t r = 0; r < m; ++r) all[r].uniform = (static_cast<double>(r) + 0.5) / m;
      std::vector<SampledToken> out(m);
      const double t = best_seconds(5, [&] { linear_sample(head, x.data(), s.k, all, out); });
      fmt::print("  {} {:.2f} ms", name, 1e3 * t);
    }
    fmt::print("\n");
  }
  std::fflush(stdout);
}

void bench() {
  const double peak = measure_fma_gflops();
  fmt::print("# {} threads, {}, FMA {:.0f} GFLOP/s\n", compute_pool().num_threads(), kernel_isa(),
             peak);
  bench_shape({256, 8192, 1024}, DType::kF32, peak);
  bench_shape({576, 49152, 512}, DType::kF32, peak);
  bench_shape({256, 151936, 1024}, DType::kF32, peak);
  bench_shape({1024, 151936, 64}, DType::kBF16, peak);
  fmt::print("# after: FMA {:.0f} GFLOP/s, peak memory {} MiB\n", measure_fma_gflops(),
             peak_resident_bytes() >> 20);
}

}  // namespace
}  // namespace keel::ops

int main() { keel::ops::bench(); }
