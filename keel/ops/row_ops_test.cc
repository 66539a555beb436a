// Row-wise ops and the mixture of experts: forward against scalar f64 references, gradients against
// central differences of those references, batch invariance bit for bit.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>

#include "keel/base/rng.h"
#include "keel/base/thread_pool.h"
#include "keel/ops/embedding/embedding_kernels.h"
#include "keel/ops/functions.h"
#include "keel/ops/rms_norm/rms_norm_kernels.h"
#include "keel/ops/rope/rope_kernels.h"
#include "keel/ops/swiglu/swiglu_kernels.h"

namespace keel::ops {
namespace {

using Doubles = std::vector<double>;
using Floats = std::vector<float>;

Floats random(size_t n, uint64_t key, double scale = 1.0) {
  Floats x(n);
  for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>((uniform(key, i) - 0.5) * 2 * scale);
  return x;
}
Doubles to_doubles(const Floats& x) { return {x.begin(), x.end()}; }

double dot(const Doubles& a, const Floats& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// d <f(x), cotangent> / dx by central differences.
Doubles numeric_gradient(const std::function<Doubles(const Doubles&)>& f, const Floats& x,
                         const Floats& cotangent) {
  Doubles at = to_doubles(x), grad(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double h = 1e-5, keep = at[i];
    at[i] = keep + h;
    const double up = dot(f(at), cotangent);
    at[i] = keep - h;
    const double down = dot(f(at), cotangent);
    at[i] = keep;
    grad[i] = (up - down) / (2 * h);
  }
  return grad;
}

void expect_close(std::span<const float> got, const Doubles& want, double tolerance,
                  const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], tolerance * std::max(1.0, std::abs(want[i])))
        << what << " at " << i;
  }
}

Doubles norm_ref(const Doubles& x, const Doubles& w, size_t n) {
  Doubles y(x.size());
  for (size_t r = 0; r < x.size() / n; ++r) {
    double square = 0;
    for (size_t i = 0; i < n; ++i) square += x[r * n + i] * x[r * n + i];
    const double rstd = 1 / std::sqrt(square / static_cast<double>(n) + 1e-6);
    for (size_t i = 0; i < n; ++i) y[r * n + i] = w[i] * x[r * n + i] * rstd;
  }
  return y;
}

TEST(RmsNorm, MatchesReferenceAndDifferences) {
  for (const size_t n : {8, 24, 72}) {
    const size_t m = 5;
    const Floats x = random(m * n, 1), w = random(n, 2), dy = random(m * n, 3);
    Floats y(m * n), rstd(m), dx(m * n), dw(n, 0.0f);
    const auto cols = static_cast<int64_t>(n);
    rms_norm_forward(x.data(), cols, w.data(), m, cols, 1e-6f, false, y.data(), cols, rstd.data());
    expect_close(y, norm_ref(to_doubles(x), to_doubles(w), n), 1e-5, "y");
    rms_norm_backward(x.data(), cols, w.data(), rstd.data(), dy.data(), cols, m, cols, dx.data(),
                      cols, dw.data());
    expect_close(
        dx,
        numeric_gradient([&](const Doubles& v) { return norm_ref(v, to_doubles(w), n); }, x, dy),
        1e-4, "dx");
    expect_close(
        dw,
        numeric_gradient([&](const Doubles& v) { return norm_ref(to_doubles(x), v, n); }, w, dy),
        1e-4, "dw");
  }
}

TEST(RmsNorm, GradientOfTheWeightDoesNotDependOnThreads) {
  const int64_t m = 300, n = 64;
  const Floats x = random(m * n, 1), w = random(n, 2), dy = random(m * n, 3);
  Floats y(m * n), rstd(m), dx(m * n);
  std::vector<Floats> results;
  for (const int threads : {1, 2}) {
    set_num_threads(threads);
    Floats dw(n, 0.0f);
    rms_norm_forward(x.data(), n, w.data(), m, n, 1e-6f, false, y.data(), n, rstd.data());
    rms_norm_backward(x.data(), n, w.data(), rstd.data(), dy.data(), n, m, n, dx.data(), n,
                      dw.data());
    results.push_back(dw);
  }
  EXPECT_EQ(results[0], results[1]);
}

Doubles swiglu_ref(const Doubles& x, size_t n) {
  Doubles y(x.size() / 2);
  for (size_t r = 0; r < y.size() / n; ++r) {
    for (size_t i = 0; i < n; ++i) {
      const double g = x[r * 2 * n + i], u = x[r * 2 * n + n + i];
      y[r * n + i] = g / (1 + std::exp(-g)) * u;
    }
  }
  return y;
}

TEST(Swiglu, MatchesReferenceAndDifferences) {
  const size_t m = 3, n = 40;
  const Floats x = random(m * 2 * n, 4, 8.0), dy = random(m * n, 5);
  Floats y(m * n), dx(m * 2 * n);
  swiglu_forward(x.data(), m, n, false, y.data());
  expect_close(y, swiglu_ref(to_doubles(x), n), 1e-5, "y");
  swiglu_backward(x.data(), dy.data(), m, n, dx.data());
  expect_close(dx, numeric_gradient([&](const Doubles& v) { return swiglu_ref(v, n); }, x, dy),
               1e-4, "dx");
}

// One query head and one key head of 16; v is passed through untouched.
Doubles rope_ref(const Doubles& x, const Doubles& norm, const std::vector<int32_t>& positions,
                 const Floats& freq) {
  const size_t dim = 16, half = 8;
  Doubles y;
  for (size_t r = 0; r < positions.size(); ++r) {
    for (size_t h = 0; h < 2; ++h) {
      Doubles head(x.begin() + static_cast<std::ptrdiff_t>(r * 3 * dim + h * dim),
                   x.begin() + static_cast<std::ptrdiff_t>(r * 3 * dim + (h + 1) * dim));
      head = norm_ref(head, norm, dim);
      for (size_t i = 0; i < dim; ++i) {
        const float angle = static_cast<float>(positions[r]) * freq[i % half];
        const double c = std::cos(static_cast<double>(angle)),
                     s = std::sin(static_cast<double>(angle));
        y.push_back(i < half ? head[i] * c - head[i + half] * s : head[i] * c + head[i - half] * s);
      }
    }
  }
  return y;
}

TEST(Rope, MatchesReferenceAndDifferences) {
  const std::vector<int32_t> positions = {0, 3, 100};
  const Floats freq = {1.0f, 0.5f, 0.25f, 0.1f, 0.05f, 0.01f, 0.001f, 0.0001f};
  RopeTable table(freq);
  table.reserve(101);
  const RopeShape shape{1, 1, 16, 16, 1e-6f, false};
  const Floats x = random(3 * 48, 6), norm = random(16, 7), dy = random(3 * 32, 8);
  Floats q(48), k(48), out;
  rope_forward(shape, table, positions.data(), norm.data(), norm.data(), x.data(), 3, q.data(),
               k.data());
  Floats dq, dk;
  for (size_t r = 0; r < 3; ++r) {
    out.insert(out.end(), q.begin() + static_cast<std::ptrdiff_t>(r * 16),
               q.begin() + static_cast<std::ptrdiff_t>(r * 16 + 16));
    out.insert(out.end(), k.begin() + static_cast<std::ptrdiff_t>(r * 16),
               k.begin() + static_cast<std::ptrdiff_t>(r * 16 + 16));
    dq.insert(dq.end(), dy.begin() + static_cast<std::ptrdiff_t>(r * 32),
              dy.begin() + static_cast<std::ptrdiff_t>(r * 32 + 16));
    dk.insert(dk.end(), dy.begin() + static_cast<std::ptrdiff_t>(r * 32 + 16),
              dy.begin() + static_cast<std::ptrdiff_t>(r * 32 + 32));
  }
  expect_close(out, rope_ref(to_doubles(x), to_doubles(norm), positions, freq), 1e-5, "q, k");
  Floats dx(3 * 48, 0.0f), dnorm_q(16, 0.0f), dnorm_k(16, 0.0f);
  rope_backward(shape, table, positions.data(), norm.data(), norm.data(), x.data(), dq.data(),
                dk.data(), 3, dx.data(), dnorm_q.data(), dnorm_k.data());
  expect_close(
      dx,
      numeric_gradient(
          [&](const Doubles& v) { return rope_ref(v, to_doubles(norm), positions, freq); }, x, dy),
      1e-4, "dx");
  for (size_t i = 0; i < 16; ++i) dnorm_q[i] += dnorm_k[i];  // the reference has one norm for both
  expect_close(
      dnorm_q,
      numeric_gradient(
          [&](const Doubles& v) { return rope_ref(to_doubles(x), v, positions, freq); }, norm, dy),
      1e-4, "dnorm");
}

TEST(Embedding, ReadsRowsOfPackedStorageAndScattersGradients) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Parameter table("table", 37, 24, dtype);
    Floats values = random(37 * 24, 9);
    table.set_rows(0, 0, 37, values.data());
    table.get_rows(0, 0, 37, values.data());  // as rounded
    const std::vector<int32_t> tokens = {36, 0, 17, 36, 15, 16};
    Floats x(tokens.size() * 24);
    embedding_forward(table.view(), tokens.data(), std::ssize(tokens), x.data());
    for (size_t r = 0; r < tokens.size(); ++r) {
      for (size_t i = 0; i < 24; ++i)
        ASSERT_EQ(x[r * 24 + i], values[static_cast<size_t>(tokens[r]) * 24 + i]);
    }
    table.make_trainable();
    const Floats dx = random(x.size(), 10);
    embedding_backward(tokens.data(), dx.data(), std::ssize(tokens), 24, table.grad());
    Floats grad(37 * 24);
    unpack_rows({table.grad(), DType::kF32, 37, 24, 1}, 0, 37, grad.data(), 24);
    for (size_t i = 0; i < 24; ++i) {
      EXPECT_EQ(grad[36 * 24 + i], dx[i] + dx[3 * 24 + i]);
      EXPECT_EQ(grad[1 * 24 + i], 0.0f);
    }
  }
}

TEST(Parameter, PublishRoundsMastersOfBf16Weights) {
  Parameter p("w", 20, 16, DType::kBF16, 2);
  const Floats values = random(20 * 16, 11);
  p.set_rows(1, 0, 20, values.data());
  p.make_trainable();
  Floats before(20 * 16), after(20 * 16);
  p.get_rows(1, 0, 20, before.data());
  p.publish();
  p.get_rows(1, 0, 20, after.data());
  EXPECT_EQ(before, after);  // masters start as the rounded weights
  p.master().data_ptr<float>()[p.num_elements() / 2] = 1.00390625f * 3;
  p.publish();
  p.get_rows(1, 0, 20, after.data());
  EXPECT_EQ(after[0], 3.015625f);  // nearest bf16
}

// A whole mixture: router, top-2 of 4 experts, SwiGLU experts, weights renormalised.
struct MoeCase {
  size_t m = 5, hidden = 16, inner = 8, experts = 4, top_k = 2;
  Floats router = random(4 * 16, 21), gate_up = random(4 * 16 * 16, 22),
         down = random(4 * 16 * 8, 23);
  Floats x = random(5 * 16, 24), residual = random(5 * 16, 25), dy = random(5 * 16, 26);
};

Doubles moe_ref(const MoeCase& c, const Doubles& x, const Doubles& router, const Doubles& gate_up,
                const Doubles& down) {
  Doubles y(c.m * c.hidden);
  for (size_t t = 0; t < c.m; ++t) {
    Doubles p(c.experts);
    double sum = 0;
    for (size_t e = 0; e < c.experts; ++e) {
      for (size_t i = 0; i < c.hidden; ++i) p[e] += router[e * c.hidden + i] * x[t * c.hidden + i];
      sum += p[e] = std::exp(p[e]);
    }
    std::vector<size_t> order = {0, 1, 2, 3};
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] > p[b]; });
    const double chosen = p[order[0]] + p[order[1]];
    for (size_t i = 0; i < c.hidden; ++i) y[t * c.hidden + i] = c.residual[t * c.hidden + i];
    for (size_t j = 0; j < c.top_k; ++j) {
      const size_t e = order[j];
      for (size_t a = 0; a < c.inner; ++a) {
        double g = 0, u = 0;
        for (size_t i = 0; i < c.hidden; ++i) {
          g += gate_up[(e * 2 * c.inner + a) * c.hidden + i] * x[t * c.hidden + i];
          u += gate_up[(e * 2 * c.inner + c.inner + a) * c.hidden + i] * x[t * c.hidden + i];
        }
        const double act = g / (1 + std::exp(-g)) * u * p[e] / chosen;
        for (size_t i = 0; i < c.hidden; ++i)
          y[t * c.hidden + i] += act * down[(e * c.hidden + i) * c.inner + a];
      }
    }
  }
  return y;
}

void fill(Parameter& p, const Floats& values, size_t rows, size_t columns) {
  for (int64_t e = 0; e < p.count(); ++e) {
    p.set_rows(e, 0, static_cast<int64_t>(rows),
               values.data() + static_cast<size_t>(e) * rows * columns);
  }
  p.make_trainable();
}

Floats gradient(Parameter& p) {
  Floats out(static_cast<size_t>(p.num_logical()));
  for (int64_t e = 0; e < p.count(); ++e) {
    unpack_rows({p.grad(e), DType::kF32, p.n(), p.k(), 1}, 0, p.n(), out.data() + e * p.n() * p.k(),
                p.k());
  }
  return out;
}

TEST(Moe, MatchesReferenceAndDifferences) {
  const MoeCase c;
  Parameter router("router", 4, 16, DType::kF32), gate_up("gate_up", 16, 16, DType::kF32, 4),
      down("down", 16, 8, DType::kF32, 4);
  fill(router, c.router, 4, 16);
  fill(gate_up, c.gate_up, 16, 16);
  fill(down, c.down, 16, 8);
  const MoeLayer layer{&router, &gate_up, &down, 2, true};
  auto x = at::empty({5, 16}, at::kFloat), residual = at::empty({5, 16}, at::kFloat),
       dy = at::empty({5, 16}, at::kFloat);
  std::copy(c.x.begin(), c.x.end(), x.data_ptr<float>());
  std::copy(c.residual.begin(), c.residual.end(), residual.data_ptr<float>());
  std::copy(c.dy.begin(), c.dy.end(), dy.data_ptr<float>());
  x.requires_grad_(true);
  residual.requires_grad_(true);
  const auto y = moe(x, layer, residual, false);
  const auto ref = [&](const Doubles& vx, const Doubles& vr, const Doubles& vg, const Doubles& vd) {
    return moe_ref(c, vx, vr, vg, vd);
  };
  const Doubles wx = to_doubles(c.x), wr = to_doubles(c.router), wg = to_doubles(c.gate_up),
                wd = to_doubles(c.down);
  expect_close({y.const_data_ptr<float>(), 80}, ref(wx, wr, wg, wd), 1e-5, "y");
  torch::autograd::backward({y}, {dy});
  expect_close({x.grad().const_data_ptr<float>(), 80},
               numeric_gradient([&](const Doubles& v) { return ref(v, wr, wg, wd); }, c.x, c.dy),
               2e-4, "dx");
  expect_close(
      gradient(router),
      numeric_gradient([&](const Doubles& v) { return ref(wx, v, wg, wd); }, c.router, c.dy), 2e-4,
      "router");
  expect_close(
      gradient(gate_up),
      numeric_gradient([&](const Doubles& v) { return ref(wx, wr, v, wd); }, c.gate_up, c.dy), 2e-4,
      "gate_up");
  expect_close(gradient(down),
               numeric_gradient([&](const Doubles& v) { return ref(wx, wr, wg, v); }, c.down, c.dy),
               2e-4, "down");
}

TEST(Moe, ARowDoesNotDependOnItsBatch) {
  const MoeCase c;
  Parameter router("router", 4, 16, DType::kF32), gate_up("gate_up", 16, 16, DType::kF32, 4),
      down("down", 16, 8, DType::kF32, 4);
  fill(router, c.router, 4, 16);
  fill(gate_up, c.gate_up, 16, 16);
  fill(down, c.down, 16, 8);
  const MoeLayer layer{&router, &gate_up, &down, 2, true};
  const c10::NoGradGuard no_grad;
  for (const bool round : {false, true}) {
    auto x = at::empty({5, 16}, at::kFloat);
    std::copy(c.x.begin(), c.x.end(), x.data_ptr<float>());
    const auto all = moe(x, layer, x, round);
    for (int64_t r = 0; r < 5; ++r) {
      auto row = at::empty({1, 16}, at::kFloat);
      std::copy_n(c.x.begin() + r * 16, 16, row.data_ptr<float>());
      const auto one = moe(row, layer, row, round);
      for (int64_t i = 0; i < 16; ++i) {
        ASSERT_EQ(one.const_data_ptr<float>()[i], all.const_data_ptr<float>()[r * 16 + i]);
      }
    }
  }
}

}  // namespace
}  // namespace keel::ops
