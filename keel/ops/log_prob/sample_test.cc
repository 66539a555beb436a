#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "keel/base/rng.h"
#include "keel/base/test_data.h"
#include "keel/base/thread_pool.h"
#include "keel/ops/log_prob/log_prob_kernels.h"
#include "keel/ops/log_prob/truncation.h"

namespace keel::ops {
namespace {

// A head whose logits for row r (x = unit vector r) are exactly logits[r].
struct ExactHead {
  int64_t rows, vocab;
  std::vector<float> storage, x;
  PackedView head;

  ExactHead(const std::vector<float>& logits, int64_t rows)
      : rows(rows), vocab(std::ssize(logits) / rows), x(rows * rows) {
    std::vector<float> w(vocab * rows);
    for (int64_t r = 0; r < rows; ++r) {
      x[r * rows + r] = 1;
      for (int64_t v = 0; v < vocab; ++v) w[v * rows + r] = logits[r * vocab + v];
    }
    storage.resize(packed_elements(vocab, rows));
    pack_rows(w.data(), rows, 0, vocab, vocab, rows, DType::kF32, storage.data());
    head = {storage.data(), DType::kF32, vocab, rows, 1};
  }
};

std::vector<float> random_logits(int64_t count, float scale, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> v(count);
  for (float& l : v) l = normal(rng);
  return v;
}

SampledToken sample_one(const ExactHead& h, int64_t row, const SampleParams& p) {
  SampledToken token;
  linear_sample(h.head, &h.x[row * h.rows], h.rows, {&p, 1}, {&token, 1});
  return token;
}

TEST(Sample, GreedyTakesTheLowestIdOfTies) {
  std::vector<float> logits(1300, -1.0f);
  logits[600] = logits[601] = logits[1200] = 2.0f;
  const ExactHead h(logits, 1);
  const SampledToken t = sample_one(h, 0, {.temperature = 0, .top_k = 5});
  EXPECT_EQ(t.id, 600);
  EXPECT_TRUE(t.kept.empty());
  EXPECT_NEAR(t.log_prob, 2 - std::log(3 * std::exp(2.0) + 1297 * std::exp(-1.0)), 1e-5);
}

TEST(Sample, LogProbHasTheBitsOfTraining) {
  const int64_t vocab = 1800, rows = 24;
  const ExactHead h(random_logits(rows * vocab, 2, 1), rows);
  std::vector<SampleParams> params;
  for (int64_t r = 0; r < rows; ++r) {
    SampleParams p{.temperature = r % 4 == 0 ? 0.6f : 1.0f, .uniform = uniform(5, r)};
    if (r % 3 == 1) p.top_k = 20;
    if (r % 5 == 1) p.top_p = 0.8f;
    if (r % 7 == 1) p.min_p = 0.05f;
    params.push_back(p);
  }
  std::vector<SampledToken> tokens(rows);
  linear_sample(h.head, h.x.data(), rows, params, tokens);
  std::vector<int32_t> targets, ids;
  std::vector<int64_t> offsets = {0};
  std::vector<float> temperature;
  for (int64_t r = 0; r < rows; ++r) {
    targets.push_back(tokens[r].id);
    temperature.push_back(params[r].temperature);
    ids.insert(ids.end(), tokens[r].kept.begin(), tokens[r].kept.end());
    offsets.push_back(std::ssize(ids));
  }
  std::vector<float> log_prob(rows), entropy(rows), lse(rows);
  linear_log_prob_forward(h.head, h.x.data(), rows, rows, targets.data(), temperature.data(),
                          {ids, offsets}, log_prob.data(), entropy.data(), lse.data());
  for (int64_t r = 0; r < rows; ++r) {
    EXPECT_EQ(tokens[r].log_prob, log_prob[r]) << r;
    EXPECT_EQ(tokens[r].entropy, entropy[r]) << r;
    EXPECT_EQ(tokens[r].kept.empty(), r % 3 != 1 && r % 5 != 1 && r % 7 != 1) << r;
    for (const int threads : {1, 2}) {  // alone, any threads: the same token
      set_num_threads(threads);
      const SampledToken alone = sample_one(h, r, params[r]);
      EXPECT_EQ(alone.id, tokens[r].id);
      EXPECT_EQ(alone.log_prob, tokens[r].log_prob);
      EXPECT_EQ(alone.kept, tokens[r].kept);
    }
  }
}

// Chi-square against exp(logits / T) over the kept ids; 600 ids in two tiles, 5,000 draws.
void check_distribution(const SampleParams& base) {
  const int64_t vocab = 600, draws = 5000;
  const auto logits = random_logits(vocab, 1, 3);
  const ExactHead h(logits, 1);
  std::vector<int64_t> count(vocab);
  std::vector<int32_t> kept;
  std::vector<SampleParams> params(100, base);
  std::vector<SampledToken> tokens(100);
  const std::vector<float> x(100, 1.0f);
  for (int64_t i = 0; i < draws; i += 100) {
    for (int64_t j = 0; j < 100; ++j) params[j].uniform = uniform(11, i + j);
    linear_sample(h.head, x.data(), 1, params, tokens);
    for (const SampledToken& t : tokens) ++count[t.id];
    kept = tokens[0].kept;
  }
  std::vector<double> p(vocab);
  double total = 0;
  for (int64_t v = 0; v < vocab; ++v) {
    if (kept.empty() || std::binary_search(kept.begin(), kept.end(), v))
      p[v] = std::exp(double{logits[v]} / base.temperature);
    total += p[v];
  }
  double chi2 = 0, freedom = -1, rest_p = 0, rest_count = 0;
  for (int64_t v = 0; v < vocab; ++v) {
    if (p[v] == 0) {
      EXPECT_EQ(count[v], 0) << v;
      continue;
    }
    const double expected = draws * p[v] / total;
    if (expected < 5) {  // rare ids together
      rest_p += expected;
      rest_count += static_cast<double>(count[v]);
      continue;
    }
    chi2 += std::pow(static_cast<double>(count[v]) - expected, 2) / expected;
    ++freedom;
  }
  if (rest_p > 0) chi2 += std::pow(rest_count - rest_p, 2) / rest_p, ++freedom;
  EXPECT_LT(std::abs(chi2 - freedom), 4.5 * std::sqrt(2 * freedom)) << chi2 << " " << freedom;
}

TEST(Sample, DistributionIsTheSoftmax) {
  check_distribution({});
  check_distribution({.temperature = 0.5f});
  check_distribution({.top_k = 50});
  check_distribution({.temperature = 1.5f, .top_p = 0.7f});
  check_distribution({.min_p = 0.1f});
}

TEST(Sample, UniformNearTheEnds) {
  const ExactHead h(random_logits(1111, 3, 4), 1);
  for (const double u : {1e-16, 1 - 1e-16}) {
    const SampledToken t = sample_one(h, 0, {.uniform = u});
    EXPECT_GE(t.id, 0);
    EXPECT_LT(t.id, 1111);
    EXPECT_TRUE(std::isfinite(t.log_prob));
  }
}

TEST(Sample, NanIsRefused) {
  std::vector<float> logits(40, 0.0f);
  logits[7] = NAN;
  const ExactHead h(logits, 1);
  EXPECT_THROW(sample_one(h, 0, {}), std::exception);
  EXPECT_THROW(sample_one(h, 0, {.temperature = 0}), std::exception);
}

// By sorting everything, as the definition says.
std::vector<int32_t> kept_by_sorting(const std::vector<float>& logits, int32_t k, double top_p,
                                     double min_p) {
  std::vector<int32_t> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  size_t left = order.size();
  if (k > 0 && k < std::ssize(order)) {
    const float bound = logits[order[k - 1]];
    while (logits[order[left - 1]] < bound) --left;
  }
  const double max = logits[order[0]];
  double total = 0, above = 0;
  for (size_t i = 0; i < left; ++i) total += std::exp(logits[order[i]] - max);
  std::vector<int32_t> kept;
  for (size_t i = 0; i < left; ++i) {
    const double e = std::exp(logits[order[i]] - max);
    if (i == 0 || ((top_p >= 1 || above < top_p * total) && e >= min_p)) kept.push_back(order[i]);
    above += e;
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

TEST(Truncation, EqualsSorting) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    auto logits = random_logits(1 + seed * seed * 23, 0.3f * static_cast<float>(seed), seed);
    if (seed % 4 == 3)
      for (float& l : logits) l = std::round(l * 2) / 2;  // ties
    const float max = *std::max_element(logits.begin(), logits.end());
    for (const int32_t k : {0, 1, 7, 100, 1000000}) {
      for (const float p : {1.0f, 0.95f, 0.5f, 1e-6f}) {
        for (const float m : {0.0f, 0.07f}) {
          const auto want = kept_by_sorting(logits, k, p, m);
          const auto got = kept_ids(logits, max, k, p, m);
          if (want.size() == logits.size()) {
            EXPECT_TRUE(got.empty());
          } else {
            EXPECT_EQ(got, want) << seed << " " << k << " " << p << " " << m;
          }
        }
      }
    }
  }
}

struct Safetensors {
  nlohmann::json header;
  std::vector<char> bytes;

  explicit Safetensors(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    uint64_t length = 0;
    in.read(reinterpret_cast<char*>(&length), 8);
    std::string text(length, ' ');
    in.read(text.data(), static_cast<std::streamsize>(length));
    header = nlohmann::json::parse(text);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  std::vector<float> f32(const std::string& name) const {
    const auto& offsets = header.at(name).at("data_offsets");
    const int64_t begin = offsets[0], end = offsets[1];
    std::vector<float> out((end - begin) / 4);
    std::memcpy(out.data(), bytes.data() + begin, end - begin);
    return out;
  }
};

TEST(Sample, GoldenCases) {
  const Safetensors tensors(test::golden("expected/sampling.safetensors"));
  const auto meta = nlohmann::json::parse(std::ifstream(test::golden("expected/sampling.json")));
  const int64_t rows = 6;
  const auto logits = tensors.f32("logits");
  const int64_t vocab = std::ssize(logits) / rows;
  const ExactHead h(logits, rows);
  int64_t checked = 0;
  for (const auto& c : meta.at("cases")) {
    if (c.at("repetition_penalty") != 1) continue;  // not offered: refused in training
    SampleParams p{.temperature = c.at("temperature"),
                   .top_k = c.at("top_k"),
                   .top_p = c.at("top_p"),
                   .min_p = c.at("min_p")};
    const auto want = tensors.f32(fmt::format("{}/processed_logp", c.at("case").get<int>()));
    for (int64_t r = 0; r < rows; ++r) {
      std::vector<int32_t> kept;
      for (int32_t v = 0; v < vocab; ++v)
        if (std::isfinite(want[r * vocab + v])) kept.push_back(v);
      for (const double u : {0.1, 0.5, 0.9}) {
        p.uniform = u;
        const SampledToken t = sample_one(h, r, p);
        if (std::ssize(kept) == vocab) {
          EXPECT_TRUE(t.kept.empty());
        } else {
          EXPECT_EQ(t.kept, kept) << c.dump() << " row " << r;
        }
        EXPECT_NEAR(t.log_prob, want[r * vocab + t.id], 5e-5);
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 100);
}

}  // namespace
}  // namespace keel::ops
