#include "keel/ops/linear/linear_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "keel/base/error.h"
#include "keel/base/thread_pool.h"
#include "keel/ops/isa.h"
#include "keel/ops/linear/linear_ref.h"

namespace keel::ops {
namespace {

constexpr float kSentinel = 12345.5f;

std::vector<float> random_values(int64_t count, uint32_t seed, bool bf16 = false) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> v(count);
  for (float& x : v) x = bf16 ? from_bf16(to_bf16(normal(rng))) : normal(rng);
  return v;
}

std::vector<double> wide(const std::vector<float>& v) { return {v.begin(), v.end()}; }

struct Packed {
  std::vector<float> dense;    // [n, k], as stored (rounded for bf16)
  std::vector<float> storage;  // f32 elements, or two bf16 each
  PackedView view;
};

Packed make_weight(int64_t n, int64_t k, DType dtype, uint32_t seed) {
  Packed p;
  p.dense = random_values(n * k, seed, dtype == DType::kBF16);
  p.storage.resize(packed_elements(n, k));
  pack_rows(p.dense.data(), k, 0, n, n, k, dtype, p.storage.data());
  p.view = {p.storage.data(), dtype, n, k, num_leaves_for(k)};
  return p;
}

struct Shape {
  int64_t m, n, k;
};

const Shape kShapes[] = {{1, 1, 8},    {1, 100, 264}, {2, 48, 64},    {3, 40, 520},
                         {5, 17, 24},  {7, 33, 1032}, {8, 96, 256},   {13, 31, 13},
                         {32, 70, 72}, {97, 80, 264}, {200, 49, 136}, {4, 16, 2048}};

TEST(Packed, RoundTripAndPadding) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const int64_t n = 37, k = 24;
    const Packed w = make_weight(n, k, dtype, 3);
    std::vector<float> out(n * k);
    unpack_rows(w.view, 0, n, out.data(), k);
    EXPECT_EQ(out, w.dense);
    std::vector<float> row(k);
    unpack_rows(w.view, 18, 1, row.data(), k);
    EXPECT_TRUE(std::equal(row.begin(), row.end(), w.dense.begin() + 18 * k));
  }
}

TEST(Packed, LayoutIsTheDocumentedOne) {
  std::vector<float> w(16);
  for (int i = 0; i < 16; ++i) w[i] = static_cast<float>(i);
  std::vector<uint16_t> bf16(16);
  pack_rows(w.data(), 1, 0, 16, 16, 1, DType::kBF16, bf16.data());
  const float want[] = {0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15};
  for (int i = 0; i < 16; ++i) EXPECT_EQ(from_bf16(bf16[i]), want[i]);
}

TEST(Packed, Leaves) {
  EXPECT_EQ(num_leaves_for(2048), 8);
  EXPECT_EQ(num_leaves_for(576), 4);
  EXPECT_EQ(num_leaves_for(256), 2);
  EXPECT_EQ(num_leaves_for(255), 1);
  EXPECT_EQ(leaf_begin(1032, 8, 1), 128);
  EXPECT_EQ(leaf_begin(1032, 8, 8), 1032);
}

TEST(Packed, Bf16RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(from_bf16(to_bf16(1.0f + 1.0f / 256)), 1.0f);
  EXPECT_EQ(from_bf16(to_bf16(1.0f + 3.0f / 256)), 1.0f + 4.0f / 256);
  EXPECT_TRUE(std::isnan(from_bf16(to_bf16(NAN))));
  EXPECT_TRUE(std::isinf(from_bf16(to_bf16(INFINITY))));
}

// |error| of a sum of k products in any order <= (k + 2) eps sum |x w|.
double bound(const float* x, const float* w, int64_t k) {
  double sum = 0;
  for (int64_t i = 0; i < k; ++i) sum += std::abs(double{x[i]} * w[i]);
  return (k + 2) * 0x1p-24 * sum + 1e-30;
}

TEST(LinearForward, MatchesReference) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Shape s : kShapes) {
      const Packed w = make_weight(s.n, s.k, dtype, 1);
      const auto x = random_values(s.m * s.k, 2);
      std::vector<float> y(s.m * s.n);
      linear_forward(w.view, x.data(), s.k, s.m, y.data(), s.n);
      const auto want = linear_ref(wide(x), wide(w.dense), s.m, s.n, s.k);
      for (int64_t i = 0; i < s.m * s.n; ++i)
        ASSERT_NEAR(y[i], want[i], bound(&x[i / s.n * s.k], &w.dense[i % s.n * s.k], s.k))
            << s.m << " " << s.n << " " << s.k << " at " << i;
    }
  }
}

bool has_fma() { return kernel_isa() != "SSE4" && kernel_isa() != "SCALAR"; }

TEST(LinearForward, OrderOfSumsIsTheDocumentedOne) {
  if (!has_fma()) GTEST_SKIP() << "no fused multiply-add on this CPU";
  for (const Shape s : kShapes) {
    const Packed w = make_weight(s.n, s.k, DType::kF32, 1);
    const auto x = random_values(s.m * s.k, 2);
    std::vector<float> y(s.m * s.n);
    linear_forward(w.view, x.data(), s.k, s.m, y.data(), s.n);
    for (int64_t i = 0; i < s.m; ++i)
      for (int64_t j = 0; j < s.n; ++j)
        ASSERT_EQ(y[i * s.n + j],
                  linear_dot_f32(&x[i * s.k], &w.dense[j * s.k], s.k, w.view.num_leaves));
  }
}

TEST(LinearForward, SameBitsAloneInBatchAndOnAnyThreads) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const int64_t n = 600, k = 1032, m = 150, ldx = k + 5, ldy = n + 3;
    const Packed w = make_weight(n, k, dtype, 1);
    const auto x = random_values(m * ldx, 2);
    std::vector<float> all(m * ldy);
    set_num_threads(2);
    linear_forward(w.view, x.data(), ldx, m, all.data(), ldy);
    for (const int threads : {1, 2, 3}) {
      set_num_threads(threads);
      for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 32, 96, 97, 149}) {
        const int64_t first = m - rows;
        std::vector<float> y(rows * n);
        linear_forward(w.view, x.data() + first * ldx, ldx, rows, y.data(), n);
        for (int64_t i = 0; i < rows; ++i)
          ASSERT_TRUE(std::equal(&y[i * n], &y[i * n] + n, &all[(first + i) * ldy]))
              << rows << " rows, row " << i;
      }
    }
    set_num_threads(2);
  }
}

TEST(LinearForward, RightOnEveryInstructionSet) {
  const int64_t n = 83, k = 264;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Packed w = make_weight(n, k, dtype, 1);
    for (const int64_t m : {1, 3, 7, 12}) {
      const auto x = random_values(m * k, 2);
      const auto want = linear_ref(wide(x), wide(w.dense), m, n, k);
      std::vector<float> fused;
      for (const std::string& isa : supported_isas()) {
        pin_isa(isa);
        std::vector<float> y(m * n);
        linear_forward(w.view, x.data(), k, m, y.data(), n);
        for (int64_t i = 0; i < m * n; ++i)
          ASSERT_NEAR(y[i], want[i], bound(&x[i / n * k], &w.dense[i % n * k], k)) << isa;
        if (!has_fma()) continue;
        if (fused.empty()) fused = y;
        EXPECT_EQ(y, fused) << isa;
      }
      pin_isa("");
    }
  }
  EXPECT_THROW(pin_isa("AVX9"), Error);
}

TEST(LinearForward, EpilogueRoundsInTheDocumentedPlaces) {
  const int64_t m = 7, n = 37, k = 40;
  const Packed w = make_weight(n, k, DType::kBF16, 1);
  const auto x = random_values(m * k, 2, true);
  const auto bias = random_values(n, 3);
  const auto residual = random_values(m * (n + 2), 4, true);
  std::vector<float> plain(m * n), y(m * n);
  linear_forward(w.view, x.data(), k, m, plain.data(), n);
  const auto round = [](float v) { return from_bf16(to_bf16(v)); };
  linear_forward(w.view, x.data(), k, m, y.data(), n, {bias.data(), nullptr, 0, true});
  for (int64_t i = 0; i < m * n; ++i) EXPECT_EQ(y[i], round(plain[i] + bias[i % n]));
  linear_forward(w.view, x.data(), k, m, y.data(), n, {bias.data(), residual.data(), n + 2, true});
  for (int64_t i = 0; i < m * n; ++i)
    EXPECT_EQ(y[i], round(round(plain[i] + bias[i % n]) + residual[i / n * (n + 2) + i % n]));
  linear_forward(w.view, x.data(), k, m, y.data(), n, {nullptr, residual.data(), n + 2, false});
  for (int64_t i = 0; i < m * n; ++i) EXPECT_EQ(y[i], plain[i] + residual[i / n * (n + 2) + i % n]);
}

TEST(LinearForward, WritesNothingElse) {
  for (const Shape s : kShapes) {
    const int64_t ldy = s.n + 7;
    const Packed w = make_weight(s.n, s.k, DType::kF32, 1);
    const auto x = random_values(s.m * s.k, 2);
    std::vector<float> y(s.m * ldy, kSentinel);
    linear_forward(w.view, x.data(), s.k, s.m, y.data(), ldy);
    for (int64_t i = 0; i < s.m * ldy; ++i) {
      if (i % ldy >= s.n) {
        ASSERT_EQ(y[i], kSentinel);
      }
    }
  }
}

TEST(LinearForward, ExpertsGiveTheBitsOfSingleCalls) {
  const int64_t n = 72, k = 264, ld = k + 4;
  const std::vector<int64_t> offsets = {0, 3, 3, 4, 60, 67, 68};
  const int64_t m = offsets.back();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    std::vector<Packed> weights;
    std::vector<PackedView> views;
    for (uint32_t e = 0; e + 1 < offsets.size(); ++e)
      weights.push_back(make_weight(n, k, dtype, 10 + e));
    for (const Packed& p : weights) views.push_back(p.view);
    const auto x = random_values(m * ld, 2);
    for (const int threads : {1, 2}) {
      set_num_threads(threads);
      std::vector<float> y(m * n), want(m * n);
      grouped_linear_forward(views, offsets, x.data(), ld, y.data(), n, true);
      for (size_t e = 0; e < views.size(); ++e)
        linear_forward(views[e], &x[offsets[e] * ld], ld, offsets[e + 1] - offsets[e],
                       &want[offsets[e] * n], n, {nullptr, nullptr, 0, true});
      EXPECT_EQ(y, want);
    }
  }
  set_num_threads(2);
}

std::vector<double> magnitude(const std::vector<float>& v) {
  std::vector<double> out;
  for (const float x : v) out.push_back(std::abs(x));
  return out;
}

TEST(LinearGradInput, MatchesReference) {
  for (const std::string& isa : supported_isas()) {
    pin_isa(isa);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const Shape s : kShapes) {
        const Packed w = make_weight(s.n, s.k, dtype, 1);
        const auto dy = random_values(s.m * s.n, 2);
        std::vector<float> dx(s.m * s.k, NAN);
        linear_grad_input(w.view, dy.data(), s.n, s.m, dx.data(), s.k, false);
        const auto want = linear_grad_input_ref(wide(dy), wide(w.dense), s.m, s.n, s.k);
        const auto scale = linear_grad_input_ref(magnitude(dy), magnitude(w.dense), s.m, s.n, s.k);
        for (int64_t i = 0; i < s.m * s.k; ++i)
          ASSERT_NEAR(dx[i], want[i], (s.n + 2) * 0x1p-24 * scale[i] + 1e-30) << isa << " " << i;
      }
    }
  }
  pin_isa("");
}

TEST(LinearGradInput, RowsAreBatchInvariantAndAccumulate) {
  const int64_t n = 600, k = 72, m = 300, lddy = n + 5, lddx = k + 3;
  const Packed w = make_weight(n, k, DType::kF32, 1);
  const auto dy = random_values(m * lddy, 2);
  std::vector<float> all(m * lddx, kSentinel);
  set_num_threads(2);
  linear_grad_input(w.view, dy.data(), lddy, m, all.data(), lddx, false);
  for (const int threads : {1, 2}) {
    set_num_threads(threads);
    for (const int64_t rows : {1, 2, 3, 7, 8, 100, 257}) {
      std::vector<float> dx(rows * k, 1.0f);
      linear_grad_input(w.view, &dy[(m - rows) * lddy], lddy, rows, dx.data(), k, true);
      for (int64_t i = 0; i < rows * k; ++i)
        ASSERT_EQ(dx[i], 1.0f + all[(m - rows + i / k) * lddx + i % k]) << rows;
    }
  }
  set_num_threads(2);
  for (int64_t i = 0; i < m * lddx; ++i) ASSERT_EQ(all[i] == kSentinel, i % lddx >= k);
}

// dw in packed f32 order -> [n, k].
std::vector<float> unpacked(const std::vector<float>& dw, int64_t n, int64_t k) {
  std::vector<float> out(n * k);
  unpack_rows({dw.data(), DType::kF32, n, k, 1}, 0, n, out.data(), k);
  return out;
}

TEST(LinearGradWeight, MatchesReferenceAddsAndLeavesPaddingAlone) {
  for (const std::string& isa : supported_isas()) {
    pin_isa(isa);
    for (const Shape s : {Shape{1, 1, 8}, Shape{5, 33, 24}, Shape{7, 20, 7}, Shape{300, 40, 200},
                          Shape{64, 96, 264}, Shape{513, 16, 13}}) {
      const int64_t ldx = s.k + 3, lddy = s.n + 1;
      const auto x = random_values(s.m * ldx, 1);
      const auto dy = random_values(s.m * lddy, 2);
      std::vector<float> dense_x, dense_dy;
      for (int64_t i = 0; i < s.m; ++i) {
        dense_x.insert(dense_x.end(), &x[i * ldx], &x[i * ldx] + s.k);
        dense_dy.insert(dense_dy.end(), &dy[i * lddy], &dy[i * lddy] + s.n);
      }
      std::vector<float> dw(packed_elements(s.n, s.k) + 16, 1.0f);
      linear_grad_weight(x.data(), ldx, dy.data(), lddy, s.m, s.n, s.k, dw.data());
      const auto want = linear_grad_weight_ref(wide(dense_x), wide(dense_dy), s.m, s.n, s.k);
      const auto scale =
          linear_grad_weight_ref(magnitude(dense_x), magnitude(dense_dy), s.m, s.n, s.k);
      const auto got = unpacked(dw, s.n, s.k);
      for (int64_t i = 0; i < s.n * s.k; ++i)
        ASSERT_NEAR(got[i], 1 + want[i], (s.m + 2) * 0x1p-24 * (scale[i] + 1)) << isa << " " << i;
      for (int64_t i = packed_elements(s.n, s.k); i < std::ssize(dw); ++i) ASSERT_EQ(dw[i], 1.0f);
      const int64_t last = (num_panels(s.n) - 1) * s.k * kPanel;
      for (int64_t i = last; i < packed_elements(s.n, s.k); ++i) {
        if (i % kPanel >= (s.n - 1) % kPanel + 1) {
          ASSERT_EQ(dw[i], 1.0f);
        }
      }
    }
  }
  pin_isa("");
}

TEST(LinearGradWeight, BitsDoNotDependOnThreads) {
  const int64_t n = 200, k = 520, m = 600;
  const auto x = random_values(m * k, 1);
  const auto dy = random_values(m * n, 2);
  std::vector<float> first;
  for (const int threads : {1, 2, 3}) {
    set_num_threads(threads);
    std::vector<float> dw(packed_elements(n, k));
    linear_grad_weight(x.data(), k, dy.data(), n, m, n, k, dw.data());
    if (first.empty()) first = dw;
    EXPECT_EQ(dw, first);
  }
  set_num_threads(2);
}

TEST(LinearGrad, ExpertsGiveTheBitsOfSingleCalls) {
  const int64_t n = 72, k = 264;
  const std::vector<int64_t> offsets = {0, 3, 3, 4, 60, 67, 200};
  const int64_t m = offsets.back();
  std::vector<Packed> weights;
  std::vector<PackedView> views;
  for (uint32_t e = 0; e + 1 < offsets.size(); ++e)
    weights.push_back(make_weight(n, k, DType::kF32, 10 + e));
  for (const Packed& p : weights) views.push_back(p.view);
  const auto x = random_values(m * k, 2);
  const auto dy = random_values(m * n, 3);
  std::vector<float> dx(m * k), want_dx(m * k);
  std::vector<std::vector<float>> dw(views.size(), std::vector<float>(packed_elements(n, k)));
  auto want_dw = dw;
  std::vector<float*> pointers;
  for (auto& v : dw) pointers.push_back(v.data());
  grouped_linear_grad_input(views, offsets, dy.data(), n, dx.data(), k);
  grouped_linear_grad_weight(offsets, x.data(), k, dy.data(), n, n, k, pointers);
  for (size_t e = 0; e < views.size(); ++e) {
    const int64_t first = offsets[e], rows = offsets[e + 1] - first;
    linear_grad_input(views[e], &dy[first * n], n, rows, &want_dx[first * k], k, false);
    linear_grad_weight(&x[first * k], k, &dy[first * n], n, rows, n, k, want_dw[e].data());
  }
  EXPECT_EQ(dx, want_dx);
  EXPECT_EQ(dw, want_dw);
}

}  // namespace
}  // namespace keel::ops
