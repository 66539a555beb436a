// Speed of the matrix products at the shapes of small models, as shares of the measured peak.
//   linear_bench [forward|tree|backward]
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string_view>
#include <vector>

#include "keel/base/thread_pool.h"
#include "keel/ops/bench_limits.h"
#include "keel/ops/isa.h"
#include "keel/ops/linear/linear_kernels.h"

namespace keel::ops {
namespace {

double seconds_of(auto&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Second best of 7 repeats (hosts are shared); each runs long enough for the clock.
double typical_seconds(auto&& work) {
  const double once = seconds_of(work);
  const int inner = std::clamp(static_cast<int>(0.004 / (once + 1e-9)), 1, 2000);
  std::vector<double> t;
  for (int r = 0; r < 7; ++r) {
    t.push_back(seconds_of([&] {
                  for (int i = 0; i < inner; ++i) work();
                }) /
                inner);
  }
  std::nth_element(t.begin(), t.begin() + 1, t.end());
  return t[1];
}

std::vector<float> random_values(int64_t count) {
  std::mt19937 rng(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> v(count);
  for (float& x : v) x = uniform(rng);
  return v;
}

struct Weight {
  std::vector<float> storage;
  PackedView view;
};

Weight make_weight(int64_t n, int64_t k, DType dtype) {
  Weight w;
  w.storage.resize(packed_elements(n, k) / (dtype == DType::kF32 ? 1 : 2) + 32);
  const auto row = random_values(k);
  auto* aligned =
      reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(w.storage.data()) + 63) / 64 * 64);
  for (int64_t r = 0; r < n; ++r) pack_rows(row.data(), k, r, 1, n, k, dtype, aligned);
  w.view = {aligned, dtype, n, k, num_leaves_for(k)};
  return w;
}

struct Shape {
  int64_t k, n;
};
constexpr Shape kShapes[] = {{256, 768}, {768, 256}, {576, 1536}, {1024, 3072}, {3072, 1024}};
constexpr Shape kHead = {1024, 151936};

void print_limits(const char* when, double peak) {
  fmt::print("# {}: {} threads, {}, FMA {:.0f} GFLOP/s, DRAM read {:.1f} GB/s\n", when,
             compute_pool().num_threads(), kernel_isa(), peak, measure_dram_read_gb_per_s());
  std::fflush(stdout);
}

void bench_forward(double peak) {
  const int64_t rows[] = {1, 2, 4, 8, 16, 32, 64, 256, 1024};
  fmt::print("forward GFLOP/s (% of peak)\n{:>14} {:>5}", "k, n", "dtype");
  for (const int64_t m : rows) fmt::print(" {:>10}", m);
  fmt::print("\n");
  std::vector<Shape> shapes(std::begin(kShapes), std::end(kShapes));
  shapes.push_back(kHead);
  for (const Shape s : shapes) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const Weight w = make_weight(s.n, s.k, dtype);
      const auto x = random_values(1024 * s.k);
      std::vector<float> y(1024 * s.n);
      fmt::print("{:>6}, {:>6} {:>5}", s.k, s.n, dtype == DType::kF32 ? "f32" : "bf16");
      for (const int64_t m : rows) {
        if (s.n > 100000 && m > 64) break;
        const double t =
            typical_seconds([&] { linear_forward(w.view, x.data(), s.k, m, y.data(), s.n); });
        const double gflops = 2.0 * m * s.k * s.n / t / 1e9;
        fmt::print(" {:>5.0f} ({:>2.0f})", gflops, 100 * gflops / peak);
        std::fflush(stdout);
      }
      fmt::print("\n");
    }
  }
}

// What batch invariance costs: default leaves against one accumulator an output.
void bench_tree() {
  fmt::print("cost of the leaf tree, % (paired, order swapped each repeat, median of 15)\n");
  std::vector<double> all;
  for (const Shape s : kShapes) {
    Weight w = make_weight(s.n, s.k, DType::kF32);
    PackedView one = w.view;
    one.num_leaves = 1;
    fmt::print("{:>6}, {:>6}", s.k, s.n);
    for (const int64_t m : {1, 8, 32, 256, 1024}) {
      const auto x = random_values(m * s.k);
      std::vector<float> y(m * s.n);
      const int inner = std::max<int>(1, static_cast<int>(3e8 / (2.0 * m * s.k * s.n)));
      const auto timed = [&](const PackedView& v) {
        return seconds_of([&] {
          for (int i = 0; i < inner; ++i) linear_forward(v, x.data(), s.k, m, y.data(), s.n);
        });
      };
      std::vector<double> ratios;
      for (int r = 0; r < 15; ++r) {
        const double first = timed(r % 2 ? w.view : one);
        const double second = timed(r % 2 ? one : w.view);
        ratios.push_back(r % 2 ? first / second : second / first);
      }
      std::nth_element(ratios.begin(), ratios.begin() + 7, ratios.end());
      all.push_back(ratios[7]);
      fmt::print("  m={}: {:+.1f}", m, 100 * (ratios[7] - 1));
    }
    fmt::print("\n");
  }
  std::nth_element(all.begin(), all.begin() + all.size() / 2, all.end());
  fmt::print("median of all cells: {:+.1f} %\n", 100 * (all[all.size() / 2] - 1));
}

void bench_backward(double peak) {
  fmt::print("backward GFLOP/s (% of peak)\n{:>14} {:>12} {:>12} {:>12} {:>12}\n", "k, n", "dX 512",
             "dX 2048", "dW 512", "dW 2048");
  std::vector<Shape> shapes(std::begin(kShapes), std::end(kShapes));
  shapes.push_back(kHead);
  for (const Shape s : shapes) {
    const int64_t most = s.n > 100000 ? 512 : 2048;
    const Weight w = make_weight(s.n, s.k, DType::kF32);
    const auto x = random_values(most * s.k);
    const auto dy = random_values(most * s.n);
    std::vector<float> dx(most * s.k), dw(packed_elements(s.n, s.k));
    fmt::print("{:>6}, {:>6}", s.k, s.n);
    for (const bool input : {true, false}) {
      for (const int64_t m : {512, 2048}) {
        if (m > most) {
          fmt::print(" {:>12}", "-");
          continue;
        }
        const double t = typical_seconds([&] {
          if (input) {
            linear_grad_input(w.view, dy.data(), s.n, m, dx.data(), s.k, false);
          } else {
            linear_grad_weight(x.data(), s.k, dy.data(), s.n, m, s.n, s.k, dw.data());
          }
        });
        const double gflops = 2.0 * m * s.k * s.n / t / 1e9;
        fmt::print(" {:>7.0f} ({:>2.0f})", gflops, 100 * gflops / peak);
        std::fflush(stdout);
      }
    }
    fmt::print("\n");
  }
}

int bench(std::string_view what) {
  const double peak = measure_fma_gflops();
  print_limits("before", peak);
  if (what == "forward" || what.empty()) bench_forward(peak);
  if (what == "tree" || what.empty()) bench_tree();
  if (what == "backward" || what.empty()) bench_backward(peak);
  print_limits("after", measure_fma_gflops());
  return 0;
}

}  // namespace
}  // namespace keel::ops

int main(int argc, char** argv) { return keel::ops::bench(argc > 1 ? argv[1] : ""); }
