// The promise of one engine: what is sampled does not depend on how, and training computes the
// recorded log-probs bit for bit. All families, f32 and bf16, on the golden models.
#include <gtest/gtest.h>

#include <cmath>

#include "keel/base/rng.h"
#include "keel/base/test_data.h"
#include "keel/base/thread_pool.h"
#include "keel/model/load.h"
#include "keel/rl/policy_pass.h"
#include "keel/rollout/engine.h"
#include "keel/rollout/model_runner.h"

namespace keel::rl {
namespace {

struct Case {
  const char* model;
  ops::DType dtype;
};
std::string name_of(const testing::TestParamInfo<Case>& info) {
  return std::string(info.param.model) + (info.param.dtype == ops::DType::kF32 ? "_f32" : "_bf16");
}

class Exactness : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    model_ = model::load_model(ModelDir(test::golden(std::string("models/") + GetParam().model)),
                               GetParam().dtype);
    model_->reserve_positions(512);
  }
  void TearDown() override { set_num_threads(2); }

  // Three groups of four answers; prompts of 5, 16 and 37 tokens.
  std::vector<rollout::Request> requests(float top_p) const {
    std::vector<rollout::Request> out;
    const size_t lengths[] = {5, 16, 37};
    for (int64_t g = 0; g < 3; ++g) {
      std::vector<int32_t> prompt;
      for (size_t i = 0; i < lengths[g]; ++i) {
        prompt.push_back(static_cast<int32_t>(uniform_int(300, 9, i, static_cast<uint64_t>(g))));
      }
      for (int64_t j = 0; j < 4; ++j) {
        rollout::Request r;
        r.id = g * 4 + j;
        r.group = g;
        r.prompt_ids = prompt;
        r.params.max_new_tokens = static_cast<int32_t>(11 + 9 * j);
        r.params.ignore_eos = true;
        r.params.top_p = top_p;
        r.params.temperature = 0.8f;
        r.params.seed = static_cast<uint64_t>(r.id) + 100;
        out.push_back(std::move(r));
      }
    }
    return out;
  }

  struct Setting {
    int32_t max_seqs = 64, step_tokens = 2048, chunk_tokens = 0, kv_blocks = 0;
    bool prefix_cache = true;
    int threads = 2;
  };
  std::vector<rollout::Sample> generate(const Setting& s, float top_p = 1.0f) {
    set_num_threads(s.threads);
    rollout::EngineConfig config;
    config.max_seqs = s.max_seqs;
    config.step_tokens = s.step_tokens;
    config.chunk_tokens = s.chunk_tokens;
    config.prefix_cache = s.prefix_cache;
    rollout::KvConfig kv;
    kv.kv_blocks = s.kv_blocks;
    rollout::Engine engine(config,
                           std::make_unique<rollout::ModelRunner>(*model_, kv, 4096, "test"), {});
    auto samples = engine.generate(requests(top_p));
    preemptions_ = engine.stats().num_preemptions;
    return samples;
  }

  static std::vector<PassItem> items(const std::vector<rollout::Sample>& samples) {
    std::vector<PassItem> out;
    for (const auto& s : samples) {
      out.push_back({std::span(s.ids).first(static_cast<size_t>(s.num_prompt)), s.answer(), s.group,
                     s.params.temperature, s.kept_ids, s.kept_offsets});
    }
    return out;
  }

  void expect_training_agrees(const std::vector<rollout::Sample>& samples) {
    const auto list = items(samples);
    for (const PassOptions& options :
         {PassOptions{16384, true}, PassOptions{16384, false}, PassOptions{64, true}}) {
      const TokenValues values = compute_log_probs(*model_, list, options);
      for (size_t i = 0; i < samples.size(); ++i) {
        for (size_t t = 0; t < samples[i].log_probs.size(); ++t) {
          const auto at = static_cast<size_t>(values.offsets[i]) + t;
          ASSERT_EQ(values.log_prob[at], samples[i].log_probs[t])
              << "answer " << i << " token " << t;
        }
      }
    }
  }

  // Gradient of a fixed function of the log-probs, all parameters in one array.
  std::vector<std::vector<float>> gradients(const std::vector<rollout::Sample>& samples,
                                            const PassOptions& options) {
    const auto list = items(samples);
    model_->make_trainable();
    for (ops::Parameter* p : model_->parameters()) p->grad_tensor().zero_();
    accumulate_gradients(
        *model_, list, options, [&](std::span<const int32_t> chosen, const TokenValues& values) {
          MicroBatchGrads grads;
          for (size_t i = 0; i < chosen.size(); ++i) {
            const double weight = 0.1 * (chosen[i] % 5) - 0.15;
            grads.d_log_prob.insert(grads.d_log_prob.end(),
                                    static_cast<size_t>(values.offsets[i + 1] - values.offsets[i]),
                                    weight);
          }
          return grads;
        });
    std::vector<std::vector<float>> out;
    for (ops::Parameter* p : model_->parameters())
      out.emplace_back(p->grad(), p->grad() + p->num_elements());
    return out;
  }

  double worst_difference(const std::vector<std::vector<float>>& a,
                          const std::vector<std::vector<float>>& b) const {
    double worst = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      double diff = 0, norm = 0;
      for (size_t j = 0; j < a[i].size(); ++j) {
        diff += std::pow(static_cast<double>(a[i][j]) - b[i][j], 2);
        norm += std::pow(static_cast<double>(a[i][j]), 2);
      }
      if (norm > 0) worst = std::max(worst, std::sqrt(diff / norm));
    }
    return worst;
  }

  std::unique_ptr<model::Model> model_;
  int64_t preemptions_ = 0;
};

INSTANTIATE_TEST_SUITE_P(
    All, Exactness,
    testing::Values(Case{"llama3", ops::DType::kF32}, Case{"llama3", ops::DType::kBF16},
                    Case{"qwen2_bf16", ops::DType::kF32}, Case{"qwen2_bf16", ops::DType::kBF16},
                    Case{"qwen3_untied_sharded", ops::DType::kF32},
                    Case{"qwen3_untied_sharded", ops::DType::kBF16},
                    Case{"qwen3_moe", ops::DType::kF32}, Case{"qwen3_moe", ops::DType::kBF16}),
    name_of);

TEST_P(Exactness, SamplesDoNotDependOnSchedulingAndTrainingAgrees) {
  const auto base = generate({});
  expect_training_agrees(base);
  const Setting settings[] = {{.max_seqs = 1},     {.step_tokens = 64, .chunk_tokens = 7},
                              {.chunk_tokens = 1}, {.prefix_cache = false},
                              {.threads = 1},      {.kv_blocks = 7},
                              {.kv_blocks = 11},   {.kv_blocks = 20}};
  int64_t preemptions = 0;
  for (const Setting& s : settings) {
    const auto other = generate(s);
    for (size_t i = 0; i < base.size(); ++i) {
      ASSERT_EQ(other[i].ids, base[i].ids)
          << "answer " << i << " with " << s.max_seqs << " slots, chunk " << s.chunk_tokens << ", "
          << s.kv_blocks << " blocks";
      ASSERT_EQ(other[i].log_probs, base[i].log_probs);
      ASSERT_EQ(other[i].entropies, base[i].entropies);
    }
    preemptions += preemptions_;
  }
  EXPECT_GT(preemptions, 0);
}

TEST_P(Exactness, TruncatedSamplingKeepsItsIds) {
  const auto samples = generate({}, 0.7f);
  bool cut = false;
  for (const auto& s : samples) cut = cut || !s.kept_ids.empty();
  EXPECT_TRUE(cut);
  expect_training_agrees(samples);
}

TEST_P(Exactness, GradientsDoNotDependOnPacking) {
  const auto samples = generate({});
  const auto whole = gradients(samples, {16384, false});
  const bool bf16 = GetParam().dtype == ops::DType::kBF16;
  EXPECT_LE(worst_difference(whole, gradients(samples, {64, false})), bf16 ? 1e-4 : 1e-5);
  EXPECT_LE(worst_difference(whole, gradients(samples, {16384, true})), bf16 ? 1e-2 : 1e-5);
}

}  // namespace
}  // namespace keel::rl
