// The claim of the project on real kernels: log-probs recorded while sampling are, bit for bit,
// those of the training forward, whatever slots, chunks, pool, cache or threads did.
#include "keel/rollout/model_runner.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "keel/base/thread_pool.h"
#include "keel/rollout/engine.h"

namespace keel::rollout {
namespace {

ModelSpec small_spec(Family family) {
  ModelSpec s;
  s.family = family;
  s.hidden = 64;
  s.layers = 2;
  s.heads = 4;
  s.kv_heads = 2;
  s.head_dim = 16;
  s.intermediate = 96;
  s.vocab = 700;  // two vocabulary tiles
  s.max_positions = 512;
  s.tied = family == Family::kLlama;
  s.qkv_bias = family == Family::kQwen2;
  s.qk_norm = family == Family::kQwen3 || family == Family::kQwen3Moe;
  if (family == Family::kQwen3Moe) {
    s.moe.num_experts = 8;
    s.moe.top_k = 2;
    s.moe.intermediate = 32;
    s.moe.norm_topk_prob = true;
  }
  return s;
}

void randomize(model::Model& model) {
  std::mt19937 rng(9);
  std::normal_distribution<float> normal;
  for (ops::Parameter* p : model.parameters()) {
    const int64_t k = std::max<int64_t>(p->k(), 1);
    std::vector<float> values(p->n() * k);
    const bool norm = p->name().find("norm") != std::string::npos;
    for (int64_t i = 0; i < p->count(); ++i) {
      for (auto& v : values) {
        v = norm ? 1 + 0.1f * normal(rng) : 2 * normal(rng) / std::sqrt(static_cast<float>(k));
      }
      p->set_rows(i, 0, p->n(), values.data());
    }
  }
}

std::vector<Request> mixed_requests() {
  std::mt19937 rng(4);
  std::vector<Request> requests;
  for (int64_t g = 0; g < 5; ++g) {
    std::vector<int32_t> prompt(5 + g * 13);
    for (auto& t : prompt) t = static_cast<int32_t>(rng() % 700);
    for (int m = 0; m < 2; ++m) {
      Request r;
      r.id = static_cast<int64_t>(requests.size());
      r.group = g;
      r.prompt_ids = prompt;
      r.params.max_new_tokens = 5 + static_cast<int32_t>(rng() % 16);
      r.params.seed = r.id;
      if (g == 1) r.params.temperature = 0.7f;
      if (g == 2) r.params.top_k = 5;
      if (g == 3) r.params.top_p = 0.9f, r.params.min_p = 0.01f;
      if (g == 4) r.params.temperature = 0;
      requests.push_back(r);
    }
  }
  return requests;
}

struct Options {
  int32_t max_seqs = 64;
  int32_t step_tokens = 2048;
  int32_t chunk_tokens = 0;
  int32_t kv_blocks = 400;
  bool prefix_cache = true;
  int num_threads = 2;
};

std::vector<Sample> generate(model::Model& model, const Options& o) {
  set_num_threads(o.num_threads);
  auto runner = std::make_unique<ModelRunner>(model, KvConfig{.kv_blocks = o.kv_blocks}, 0, "test");
  EngineConfig config;
  config.max_seqs = o.max_seqs;
  config.step_tokens = o.step_tokens;
  config.chunk_tokens = o.chunk_tokens;
  config.prefix_cache = o.prefix_cache;
  Engine engine(config, std::move(runner), {1, 2});
  return engine.generate(mixed_requests());
}

// All samples packed into one training-style batch: log-probs and entropies of the answers.
ops::LogProbs training_forward(model::Model& model, const std::vector<Sample>& samples) {
  const at::NoGradGuard no_grad;
  auto plan = std::make_shared<ops::AttentionPlan>();
  std::vector<int32_t> tokens;
  std::vector<int64_t> rows;
  ops::LogProbTargets targets;
  targets.kept_offsets.push_back(0);
  plan->num_blocks = 1;
  std::vector<size_t> first_block;
  for (const auto& s : samples) {
    const auto n = static_cast<int32_t>(s.ids.size()) - 1;
    const auto row = static_cast<int64_t>(tokens.size());
    first_block.push_back(plan->block_ids.size());
    plan->sequences.push_back({row, n, 0, nullptr});
    for (int32_t p = 0; p < n; ++p) {
      if (p % 16 == 0) plan->block_ids.push_back(static_cast<int32_t>(plan->num_blocks++));
      plan->positions.push_back(p);
      plan->slots.push_back({row + p, plan->block_ids.back(), p % 16});
      tokens.push_back(s.ids[p]);
      if (p + 1 < s.num_prompt) continue;
      rows.push_back(row + p);
      targets.targets.push_back(s.ids[p + 1]);
      targets.temperature.push_back(s.params.temperature > 0 ? s.params.temperature : 1.0f);
      const int32_t i = p + 1 - s.num_prompt;
      if (!s.kept_offsets.empty()) {
        targets.kept_ids.insert(targets.kept_ids.end(), s.kept_ids.begin() + s.kept_offsets[i],
                                s.kept_ids.begin() + s.kept_offsets[i + 1]);
      }
      targets.kept_offsets.push_back(static_cast<int64_t>(targets.kept_ids.size()));
    }
  }
  for (size_t i = 0; i < samples.size(); ++i) {
    plan->sequences[i].blocks = plan->block_ids.data() + first_block[i];
  }
  model.reserve_positions(512);
  const auto hidden = model.forward(tokens, {plan, nullptr});
  return ops::linear_log_prob(ops::select_rows(hidden, rows), model.head(), std::move(targets));
}

void expect_equal(const std::vector<Sample>& a, const std::vector<Sample>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].ids, b[i].ids) << "request " << i;
    ASSERT_EQ(a[i].log_probs, b[i].log_probs) << "request " << i;
    ASSERT_EQ(a[i].entropies, b[i].entropies);
    ASSERT_EQ(a[i].kept_ids, b[i].kept_ids);
  }
}

class ModelRunnerTest : public ::testing::TestWithParam<std::tuple<Family, ops::DType>> {
 protected:
  ModelRunnerTest() : model_(small_spec(std::get<0>(GetParam())), std::get<1>(GetParam())) {
    randomize(model_);
  }
  model::Model model_;
};

TEST_P(ModelRunnerTest, RecordedLogProbsAreTheTrainingForwards) {
  const auto samples = generate(model_, {});
  const auto expected = training_forward(model_, samples);
  int64_t row = 0;
  for (const auto& s : samples) {
    for (size_t i = 0; i < s.log_probs.size(); ++i, ++row) {
      ASSERT_EQ(s.log_probs[i], expected.log_prob.const_data_ptr<float>()[row])
          << "request " << s.id << " token " << i;
      ASSERT_EQ(s.entropies[i], expected.entropy.const_data_ptr<float>()[row]);
      ASSERT_LE(s.log_probs[i], 0);
    }
  }
  EXPECT_EQ(row, expected.log_prob.size(0));
}

TEST_P(ModelRunnerTest, SamplesDoNotDependOnHowTheyWereMade) {
  const auto expected = generate(model_, {});
  expect_equal(generate(model_, {.max_seqs = 1, .num_threads = 1}), expected);
  expect_equal(generate(model_, {.max_seqs = 5, .step_tokens = 9, .kv_blocks = 12}), expected);
  expect_equal(generate(model_, {.chunk_tokens = 7, .kv_blocks = 14, .prefix_cache = false}),
               expected);
  set_num_threads(2);
}

TEST_P(ModelRunnerTest, ChangedWeightsAreNoticed) {
  auto runner = std::make_unique<ModelRunner>(model_, KvConfig{}, 4000, "test");
  Engine engine({}, std::move(runner), {1, 2});
  auto requests = mixed_requests();
  const auto before = engine.generate(requests);
  std::vector<float> row(model_.spec().hidden, 0.25f);
  model_.parameters()[0]->set_rows(0, requests[0].prompt_ids[0], 1, row.data());
  model_.make_trainable();
  model_.publish();
  const auto after = engine.generate(requests);
  expect_equal(after, generate(model_, {}));
  EXPECT_NE(before[0].log_probs, after[0].log_probs);
  EXPECT_EQ(after[0].versions[0].version, model_.version());
}

INSTANTIATE_TEST_SUITE_P(Families, ModelRunnerTest,
                         ::testing::Combine(::testing::Values(Family::kLlama, Family::kQwen2,
                                                              Family::kQwen3, Family::kQwen3Moe),
                                            ::testing::Values(ops::DType::kF32,
                                                              ops::DType::kBF16)));

}  // namespace
}  // namespace keel::rollout
