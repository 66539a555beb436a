// attention_bench: forward and backward in GFLOP/s and as a share of the machine's measured peak,
// decode in GB/s and as a share of measured memory reads. Medians; limits before and after.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "keel/base/thread_pool.h"
#include "keel/ops/attention/attention_test_util.h"
#include "keel/ops/bench_limits.h"

namespace keel::ops {
namespace {

double seconds_of(const std::function<void()>& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Median of the runs of about 0.4 s (5 at least, fewer where that takes above 1.5 s), after one to
// warm up.
double median_seconds(const std::function<void()>& f) {
  std::vector<double> times;
  double total = 0;
  f();
  while (total < 1.5 && (times.size() < 5 || (total < 0.4 && times.size() < 2000))) {
    times.push_back(seconds_of(f));
    total += times.back();
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

// Query-key pairs that causal attention computes.
double pairs(const test::Problem& p) {
  double n = 0;
  for (const AttentionSequence& s : p.sequences)
    n += s.num_rows * (s.first_position + (s.num_rows + 1) / 2.0);
  return n * p.shape.num_heads;
}

void training(const char* name, test::Problem p, double peak) {
  std::vector<float> out(p.q.size()), lse(p.rows * p.shape.num_heads), dq(p.q.size());
  std::vector<float> dk(p.k_pool.size()), dv(p.v_pool.size());
  const auto dout = test::random_floats(static_cast<int64_t>(p.q.size()), 5);
  const int64_t ld = p.q_width();
  const double flop = pairs(p) * 4 * p.shape.head_dim;
  const double forward = median_seconds([&] {
    attention_forward(p.shape, p.q.data(), ld, p.pool(), p.sequences, out.data(), ld, lse.data());
  });
  const double backward = median_seconds([&] {
    attention_backward(p.shape, p.q.data(), ld, p.pool(), p.sequences, out.data(), ld, lse.data(),
                       dout.data(), ld, dq.data(), ld, dk.data(), dv.data());
  });
  const double f = flop / forward / 1e9, b = 2.5 * flop / backward / 1e9;
  fmt::print("{:<34} forward {:6.1f} GFLOP/s ({:3.0f} %)   backward {:6.1f} GFLOP/s ({:3.0f} %)\n",
             name, f, 100 * f / peak, b, 100 * b / peak);
}

void decode(const char* name, test::Problem p, bool half, double dram) {
  std::vector<float> out(p.q.size());
  double bytes = 0;
  for (const AttentionSequence& s : p.sequences)
    bytes += 2.0 * (s.first_position + s.num_rows) * p.shape.num_kv_heads * p.shape.head_dim *
             (half ? 2 : 4);
  const KvPool pool = half ? p.half_pool() : p.pool();
  const double t = median_seconds([&] {
    attention_forward(p.shape, p.q.data(), p.q_width(), pool, p.sequences, out.data(), p.q_width(),
                      nullptr);
  });
  const double rate = bytes / t / 1e9;
  fmt::print("{:<34} {:8.1f} us  {:6.1f} GB/s ({:3.0f} % of DRAM reads, {:.1f} MB)\n", name,
             t * 1e6, rate, 100 * rate / dram, bytes / 1e6);
}

std::vector<test::Want> decode_batch(int num, int shortest, int longest) {
  std::vector<test::Want> wants;
  for (int i = 0; i < num; ++i)
    wants.push_back({1, shortest - 1 + (num > 1 ? (longest - shortest) * i / (num - 1) : 0), -1});
  return wants;
}

void run() {
  const double peak = measure_fma_gflops();
  const double dram = measure_dram_read_gb_per_s();
  fmt::print("{} threads, {:.0f} GFLOP/s, {:.1f} GB/s\n", compute_pool().num_threads(), peak, dram);
  for (const int d : {64, 128})
    for (const int length : {512, 2048, 8192})
      training(fmt::format("head_dim {}, {} rows", d, length).c_str(),
               test::make_problem(8, 4, d, {{length, 0, -1}}), peak);
  std::vector<test::Want> group = {{32, 0, -1}};
  for (int i = 0; i < 32; ++i) group.push_back({128, 32, 0});
  training("64, 32 answers of 128 on one prompt", test::make_problem(4, 2, 64, group), peak);
  for (const int d : {64, 128})
    decode(fmt::format("decode {}, 32 of 100..4000", d).c_str(),
           test::make_problem(8, 4, d, decode_batch(32, 100, 4000)), false, dram);
  decode("decode 128, 32 of 100..4000, bf16",
         test::make_problem(8, 4, 128, decode_batch(32, 100, 4000), true), true, dram);
  decode("decode 64, 1 of 4000", test::make_problem(8, 4, 64, decode_batch(1, 4000, 4000)), false,
         dram);
  for (const int n : {1, 8, 32})
    decode(fmt::format("decode 64, 4/2 heads, {} of 160", n).c_str(),
           test::make_problem(4, 2, 64, decode_batch(n, 160, 160)), false, dram);
  fmt::print("after: {:.0f} GFLOP/s, {:.1f} GB/s\n", measure_fma_gflops(),
             measure_dram_read_gb_per_s());
}

}  // namespace
}  // namespace keel::ops

int main() {
  keel::ops::run();
  return 0;
}
