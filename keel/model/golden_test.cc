// Logits, log-probs, entropies, losses and gradients of all families against tests/golden.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <cstring>

#include "keel/base/test_data.h"
#include "keel/base/thread_pool.h"
#include "keel/io/half.h"
#include "keel/io/json_file.h"
#include "keel/io/safetensors.h"
#include "keel/model/batch.h"
#include "keel/model/load.h"
#include "keel/ops/linear/linear_kernels.h"

namespace keel::model {
namespace {

struct Case {
  const char* model;
  const char* expected;
};
const Case kCases[] = {{"qwen3_tied", "qwen3_tied"},
                       {"qwen3_tied_lmhead", "qwen3_tied"},
                       {"qwen3_untied_sharded", "qwen3_untied_sharded"},
                       {"qwen3_moe", "qwen3_moe"},
                       {"qwen3_moe_fused", "qwen3_moe"},
                       {"llama3", "llama3"},
                       {"qwen2_bf16", "qwen2_bf16"}};

class Expected {
 public:
  explicit Expected(const std::string& name)
      : file_(test::golden("expected/" + name + ".safetensors")) {}
  bool has(const std::string& name) const { return file_.find(name) != nullptr; }
  std::vector<float> floats(const std::string& name) const {
    const auto* t = file_.find(name);
    EXPECT_NE(t, nullptr) << name;
    std::vector<float> out(static_cast<size_t>(num_elements(t->shape)));
    to_f32(t->dtype, file_.bytes(*t), out);
    return out;
  }
  std::vector<int32_t> ids(const std::string& name) const {
    const auto* t = file_.find(name);
    EXPECT_NE(t, nullptr) << name;
    const auto bytes = file_.bytes(*t);
    std::vector<int32_t> out;
    for (size_t i = 0; i < bytes.size(); i += t->dtype == DType::kI64 ? 8 : 4) {
      int32_t v;
      std::memcpy(&v, bytes.data() + i, 4);
      out.push_back(v);
    }
    return out;
  }

 private:
  SafetensorsFile file_;
};

std::unique_ptr<Model> load(const std::string& name, ops::DType dtype) {
  auto model = load_model(ModelDir(test::golden("models/" + name)), dtype);
  model->reserve_positions(4096);
  return model;
}

// Logits [T, V] of sequences packed one after the other.
std::vector<float> logits(Model& model, std::span<const int32_t> ids,
                          std::span<const int32_t> starts) {
  const c10::NoGradGuard no_grad;
  std::vector<Continuations> groups;
  std::vector<int32_t> end = {0};
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    const auto n = static_cast<size_t>(starts[i + 1] - starts[i]);
    groups.push_back(
        {ids.subspan(static_cast<size_t>(starts[i]), n), {std::span<const int32_t>(end)}});
  }
  const PackedBatch batch = pack(groups, false);
  const auto hidden = model.forward(batch.tokens, {batch.plan, nullptr});
  std::vector<float> out(batch.tokens.size() * static_cast<size_t>(model.spec().vocab));
  ops::linear_forward(model.head().view(), hidden.const_data_ptr<float>(), model.spec().hidden,
                      hidden.size(0), out.data(), model.spec().vocab);
  return out;
}

double max_diff(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    worst = std::max(worst, static_cast<double>(std::abs(a[i] - b[i])));
  }
  return worst;
}

double mean_diff(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  return sum / static_cast<double>(a.size());
}

class GoldenModel : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(All, GoldenModel, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.model); });

TEST_P(GoldenModel, LogitsF32) {
  const Expected want(GetParam().expected);
  auto model = load(GetParam().model, ops::DType::kF32);
  const auto ids = want.ids("single/input_ids");
  const int32_t whole[] = {0, static_cast<int32_t>(ids.size())};
  EXPECT_LE(max_diff(logits(*model, ids, whole), want.floats("single/logits_f32")), 5e-5);
  EXPECT_LE(max_diff(logits(*model, want.ids("packed/input_ids"), want.ids("packed/cu_seqlens")),
                     want.floats("packed/logits_f32")),
            5e-5);
}

TEST_P(GoldenModel, LogitsBf16AreAsCloseAsTransformers) {
  const Expected want(GetParam().expected);
  const Json facts =
      read_json_file(test::golden(std::string("expected/") + GetParam().expected + ".json"));
  auto model = load(GetParam().model, ops::DType::kBF16);
  const auto ids = want.ids("single/input_ids");
  const int32_t whole[] = {0, static_cast<int32_t>(ids.size())};
  const double reference =
      mean_diff(want.floats("single/logits_bf16"), want.floats("single/logits_f32"));
  EXPECT_LE(mean_diff(logits(*model, ids, whole), want.floats("single/logits_f32")), 2 * reference)
      << facts.dump();
}

// Log-probs, entropies and gradients of the mean loss over all next tokens, sequences packed.
TEST_P(GoldenModel, LogProbsAndGradients) {
  const Expected want(GetParam().expected);
  auto model = load(GetParam().model, ops::DType::kF32);
  model->make_trainable();
  const auto ids = want.ids("packed/input_ids"), starts = want.ids("packed/cu_seqlens");
  std::vector<Continuations> groups;
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    const std::span<const int32_t> all(ids.data() + starts[i], ids.data() + starts[i + 1]);
    groups.push_back({all.first(1), {all.subspan(1)}});
  }
  const PackedBatch batch = pack(groups, true);
  const auto hidden = model->forward(batch.tokens, {batch.plan, nullptr});
  for (const float temperature : {0.7f, 1.0f}) {
    ops::LogProbTargets targets;
    targets.targets = batch.targets;
    targets.temperature.assign(batch.targets.size(), temperature);
    const auto lp =
        ops::linear_log_prob(ops::select_rows(hidden, batch.rows), model->head(), targets);
    const std::span got(lp.log_prob.const_data_ptr<float>(), batch.targets.size());
    EXPECT_LE(
        max_diff(got, want.floats(temperature == 1.0f ? "packed/logp_t1.0" : "packed/logp_t0.7")),
        5e-5);
    if (temperature != 1.0f) continue;
    const auto n = static_cast<int64_t>(batch.targets.size());
    double loss = 0;
    for (const float v : got) loss -= v / static_cast<double>(n);
    EXPECT_NEAR(loss, want.floats("packed/loss")[0], 5e-5);
    auto grad = at::empty({n}, at::kFloat).fill_(-1.0 / static_cast<double>(n));
    torch::autograd::backward({lp.log_prob}, {grad});
  }
  int checked = 0;
  for (const ParamSpec& p : parameters(model->spec())) {
    const std::string name = "packed/grad/" + p.name;
    if (!want.has(name)) continue;
    const auto expected = want.floats(name);
    std::vector<float> got(expected.size());
    read_gradient(*model, p, got);
    double diff = 0, norm = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      diff += (got[i] - expected[i]) * (got[i] - expected[i]);
      norm += expected[i] * expected[i];
    }
    EXPECT_LE(std::sqrt(diff), 1e-4 * std::sqrt(norm) + 1e-9) << name;
    ++checked;
  }
  EXPECT_GE(checked, 10);
}

}  // namespace
}  // namespace keel::model
