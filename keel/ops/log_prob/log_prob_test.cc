#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "keel/base/thread_pool.h"
#include "keel/ops/isa.h"
#include "keel/ops/linear/linear_ref.h"
#include "keel/ops/log_prob/log_prob_kernels.h"
#include "keel/ops/log_prob/log_prob_ref.h"

namespace keel::ops {
namespace {

// A head, rows of x and what goes with them. Row r keeps all ids if r % 3 == 0, else some.
struct Case {
  int64_t vocab, k, m;
  std::vector<float> w, storage, x, temperature;
  std::vector<int32_t> targets, kept_ids;
  std::vector<int64_t> kept_offsets;
  PackedView head;

  Case(int64_t vocab, int64_t k, int64_t m, DType dtype = DType::kF32)
      : vocab(vocab), k(k), m(m), w(vocab * k), storage(packed_elements(vocab, k)), x(m * k) {
    std::mt19937 rng(7);
    std::normal_distribution<float> normal;
    for (float& v : w) v = from_bf16(to_bf16(normal(rng)));
    for (float& v : x) v = normal(rng) * 0.4f;
    pack_rows(w.data(), k, 0, vocab, vocab, k, dtype, storage.data());
    head = {storage.data(), dtype, vocab, k, num_leaves_for(k)};
    kept_offsets.push_back(0);
    for (int64_t r = 0; r < m; ++r) {
      temperature.push_back(r % 2 ? 1.0f : 0.7f);
      targets.push_back(static_cast<int32_t>(rng() % vocab));
      for (int32_t v = 0; r % 3 != 0 && v < vocab; ++v)
        if (rng() % 40 == 0 || v == targets[r]) kept_ids.push_back(v);
      kept_offsets.push_back(std::ssize(kept_ids));
    }
  }
  KeptIds kept() const { return {kept_ids, kept_offsets}; }
  std::vector<int32_t> kept_row(int64_t r) const {
    return {kept_ids.begin() + kept_offsets[r], kept_ids.begin() + kept_offsets[r + 1]};
  }
  std::vector<double> logits(int64_t r) const {
    return linear_ref({x.begin() + r * k, x.begin() + (r + 1) * k}, {w.begin(), w.end()}, 1, vocab,
                      k);
  }
};

struct Outputs {
  std::vector<float> log_prob, entropy, lse;
  bool operator==(const Outputs&) const = default;
};

Outputs forward(const Case& c, const KeptIds& kept) {
  Outputs o{std::vector<float>(c.m), std::vector<float>(c.m), std::vector<float>(c.m)};
  linear_log_prob_forward(c.head, c.x.data(), c.k, c.m, c.targets.data(), c.temperature.data(),
                          kept, o.log_prob.data(), o.entropy.data(), o.lse.data());
  return o;
}

TEST(LogProb, ForwardMatchesReference) {
  for (const std::string& isa : supported_isas()) {
    pin_isa(isa);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int64_t vocab : {1, 37, 512, 1500}) {
        const Case c(vocab, 72, 7, dtype);
        for (const bool use_kept : {false, true}) {
          const Outputs o = forward(c, use_kept ? c.kept() : KeptIds{});
          for (int64_t r = 0; r < c.m; ++r) {
            const auto want = log_prob_ref(c.logits(r), c.targets[r], c.temperature[r],
                                           use_kept ? c.kept_row(r) : std::vector<int32_t>{});
            // Logits of magnitude 30 carry about 72 * 2^-24 * 30 of rounding.
            const double tolerance = 72 * 0x1p-24 * 30;
            EXPECT_NEAR(o.log_prob[r], want.log_prob, tolerance) << isa << " " << vocab;
            EXPECT_NEAR(o.entropy[r], want.entropy, tolerance);
            EXPECT_NEAR(o.lse[r], want.lse, tolerance);
          }
        }
      }
    }
  }
  pin_isa("");
}

TEST(LogProb, SameBitsAloneInBatchAndOnAnyThreads) {
  const Case c(1300, 264, 230);
  set_num_threads(2);
  const Outputs all = forward(c, c.kept());
  set_num_threads(1);
  EXPECT_EQ(forward(c, c.kept()), all);
  set_num_threads(2);
  for (const int64_t r : {0, 1, 100, 229}) {
    const auto kept = c.kept_row(r);
    const std::vector<int64_t> offsets = {0, std::ssize(kept)};
    float log_prob, entropy, lse;
    linear_log_prob_forward(c.head, &c.x[r * c.k], c.k, 1, &c.targets[r], &c.temperature[r],
                            {kept, offsets}, &log_prob, &entropy, &lse);
    EXPECT_EQ(log_prob, all.log_prob[r]);
    EXPECT_EQ(entropy, all.entropy[r]);
    EXPECT_EQ(lse, all.lse[r]);
  }
}

TEST(LogProb, TargetOutsideTheKeptIds) {
  Case c(100, 8, 1);
  const std::vector<int32_t> kept = {3, 50};
  const std::vector<int64_t> offsets = {0, 2};
  c.targets[0] = 7;
  EXPECT_EQ(forward(c, {kept, offsets}).log_prob[0], -INFINITY);
}

struct Grads {
  std::vector<float> dx, dw;
};

Grads backward(const Case& c, const KeptIds& kept, const float* g, const float* h) {
  const Outputs o = forward(c, kept);
  Grads grads{std::vector<float>(c.m * c.k, NAN),
              std::vector<float>(packed_elements(c.vocab, c.k))};
  linear_log_prob_backward(c.head, c.x.data(), c.k, c.m, c.targets.data(), c.temperature.data(),
                           kept, o.lse.data(), o.entropy.data(), g, h, grads.dx.data(), c.k,
                           grads.dw.data());
  return grads;
}

double norm(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return std::sqrt(sum);
}

void expect_near(const std::vector<float>& got, const std::vector<double>& want, double relative) {
  const double scale = relative * norm(want) / std::sqrt(static_cast<double>(want.size()));
  double error = 0;
  for (size_t i = 0; i < want.size(); ++i) error += std::pow(got[i] - want[i], 2);
  EXPECT_LE(std::sqrt(error / static_cast<double>(want.size())), scale);
}

TEST(LogProb, BackwardMatchesReference) {
  for (const std::string& isa : supported_isas()) {
    pin_isa(isa);
    for (const int64_t vocab : {37, 2700}) {
      for (const bool use_kept : {false, true}) {
        const Case c(vocab, 40, 9);
        const std::vector<float> g = {1, -0.5, 2, 0, 1, 0.3f, -1, 1, 0.7f};
        const std::vector<float> h = {0.1f, 0, -1, 1, 0.5f, 0, 0.2f, -0.3f, 1};
        for (const float* dh : {static_cast<const float*>(nullptr), h.data()}) {
          const KeptIds kept = use_kept ? c.kept() : KeptIds{};
          const Grads got = backward(c, kept, g.data(), dh);
          std::vector<double> dl;
          for (int64_t r = 0; r < c.m; ++r) {
            const auto row = log_prob_grad_ref(c.logits(r), c.targets[r], c.temperature[r],
                                               use_kept ? c.kept_row(r) : std::vector<int32_t>{},
                                               g[r], dh == nullptr ? 0 : dh[r]);
            dl.insert(dl.end(), row.begin(), row.end());
          }
          const std::vector<double> w(c.w.begin(), c.w.end()), x(c.x.begin(), c.x.end());
          expect_near(got.dx, linear_grad_input_ref(dl, w, c.m, vocab, c.k), 2e-5);
          std::vector<float> dw(vocab * c.k);
          unpack_rows({got.dw.data(), DType::kF32, vocab, c.k, 1}, 0, vocab, dw.data(), c.k);
          expect_near(dw, linear_grad_weight_ref(x, dl, c.m, vocab, c.k), 2e-5);
        }
      }
    }
  }
  pin_isa("");
}

TEST(LogProb, ReferenceGradientIsTheDerivative) {
  const Case c(50, 8, 3);
  for (int64_t r = 0; r < c.m; ++r) {
    auto logits = c.logits(r);
    const double g = 0.7, h = -1.3, step = 1e-6;
    const auto loss = [&] {
      const auto f = log_prob_ref(logits, c.targets[r], c.temperature[r], c.kept_row(r));
      return g * f.log_prob + h * f.entropy;
    };
    const auto grad =
        log_prob_grad_ref(logits, c.targets[r], c.temperature[r], c.kept_row(r), g, h);
    for (size_t v = 0; v < logits.size(); ++v) {
      const double at = logits[v];
      logits[v] = at + step;
      const double up = loss();
      logits[v] = at - step;
      const double down = loss();
      logits[v] = at;
      EXPECT_NEAR(grad[v], (up - down) / (2 * step), 1e-6);
    }
  }
}

TEST(LogProb, BackwardBitsDoNotDependOnThreadsOrTheBatch) {
  const Case c(1100, 72, 300);
  const std::vector<float> g(c.m, 0.5f), h(c.m, 0.1f);
  set_num_threads(2);
  const Grads all = backward(c, c.kept(), g.data(), h.data());
  set_num_threads(1);
  const Grads one = backward(c, c.kept(), g.data(), h.data());
  set_num_threads(2);
  EXPECT_EQ(all.dx, one.dx);
  EXPECT_EQ(all.dw, one.dw);
  const int64_t r = 123;  // keeps everything
  const Outputs o = forward(c, c.kept());
  std::vector<float> dx(c.k);
  linear_log_prob_backward(c.head, &c.x[r * c.k], c.k, 1, &c.targets[r], &c.temperature[r], {},
                           &o.lse[r], &o.entropy[r], &g[r], &h[r], dx.data(), c.k, nullptr);
  EXPECT_TRUE(std::equal(dx.begin(), dx.end(), &all.dx[r * c.k]));
}

}  // namespace
}  // namespace keel::ops
