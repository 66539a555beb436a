// Rules and search of layouts on published set-ups and on broken ones.
#include "keel/sim/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>

#include "keel/base/error.h"
#include "keel/base/test_data.h"
#include "keel/sim/evaluate.h"

namespace keel::sim {
namespace {

struct PlanTest : testing::Test {
  static const Catalog& catalog() {
    static const Catalog kCatalog = load_catalog(std::string(KEEL_SOURCE_DIR).append("/twin"));
    return kCatalog;
  }
  static const Calibration& calibration() {
    static const Calibration kCalibration =
        load_calibrations(std::string(KEEL_SOURCE_DIR).append("/twin/calibration"));
    return kCalibration;
  }
  static SimRun published(const std::string& family, const std::string& id) {
    for (auto& run : load_runs(test::golden("sim/runs/" + family + ".yaml"))) {
      if (run.id == id) return run;
    }
    throw std::runtime_error(id);
  }
  static std::vector<std::string> errors(const SimRun& run) {
    std::vector<std::string> out;
    for (const auto& f : check_plan(run, catalog(), calibration())) {
      if (f.error) out.push_back(f.rule + " " + f.message);
    }
    return out;
  }
  static bool warns(const SimRun& run, const std::string& rule) {
    const auto all = check_plan(run, catalog(), calibration());
    return std::any_of(all.begin(), all.end(),
                       [&](const auto& f) { return !f.error && f.rule == rule; });
  }
};

TEST_F(PlanTest, PublishedSetUpHasNoErrors) {
  EXPECT_THAT(errors(published("cann-qwen3-235b", "grpo-122tps")), testing::IsEmpty());
}

TEST_F(PlanTest, RulesNameFieldAndRemedy) {
  using testing::AllOf;
  using testing::ElementsAre;
  using testing::HasSubstr;
  auto run = published("cann-qwen3-235b", "grpo-122tps");
  run.train.dp = 4;
  EXPECT_THAT(errors(run),
              ElementsAre(AllOf(HasSubstr("layout.train.dp"), HasSubstr("try dp = 2"))));
  run = published("cann-qwen3-235b", "grpo-122tps");
  run.train.pp_layers = {23, 24, 24, 24};
  EXPECT_THAT(errors(run), ElementsAre(HasSubstr("pipeline_layers")));
  run = published("cann-qwen3-235b", "grpo-122tps");
  run.train.cp = 1;
  run.train.dp = 8;
  run.train.recompute = "none";
  EXPECT_THAT(errors(run),
              ElementsAre(AllOf(HasSubstr("train_memory"), HasSubstr("recompute: full"))));
  run = published("cann-qwen3-235b", "grpo-122tps");
  run.engine.max_batched_tokens = 128;
  EXPECT_THAT(errors(run), ElementsAre(HasSubstr("token_budget")));
  run = published("cann-qwen3-235b", "grpo-122tps");
  run.workload.minibatch_prompts = 100;
  EXPECT_THAT(errors(run), ElementsAre(HasSubstr("batch_identity")));
  run = published("cann-qwen3-235b", "grpo-122tps");
  run.rollout.tp = 1;
  run.rollout.dp = 8;
  run.rollout.ep = 8;
  run.rollout.devices = 8;
  EXPECT_THAT(errors(run), ElementsAre(HasSubstr("rollout_memory")));
}

TEST_F(PlanTest, DeepSpeedBatchIdentity) {
  auto run = published("megatron-bridge", "mbridge-q30-bf16");
  run.workload.global_batch = 8;  // micro 1 on 16 ranks
  EXPECT_THAT(errors(run), testing::ElementsAre(testing::HasSubstr("n = 0.5")));
}

TEST_F(PlanTest, CacheIsAsLargeAsPublished) {
  const auto run = published("cann-qwen3-235b", "grpo-122tps");
  const auto memory = run_rollout_memory(run, catalog(), calibration());
  EXPECT_NEAR(static_cast<double>(memory.kv_tokens), 900608, 0.02 * 900608);
}

TEST_F(PlanTest, WarnsOfWaste) {
  auto run = published("cann-qwen3-235b", "exp2-default");
  EXPECT_TRUE(warns(run, "prompt_order"));
  EXPECT_TRUE(warns(run, "graph_sizes"));
  EXPECT_TRUE(warns(run, "attention_split"));
  run = published("cann-qwen3-235b", "grpo-122tps");
  EXPECT_FALSE(warns(run, "kv_survivors"));
  run.workload.response_len.mean = 30000;
  EXPECT_TRUE(warns(run, "kv_survivors"));
}

TEST_F(PlanTest, FindsAPlanForTheLargestModelInTime) {
  PlanRequest request;
  request.run = published("cann-qwen3-235b", "grpo-122tps");
  request.top = 3;
  const auto start = std::clock();
  const auto result = plan_layouts(request, catalog(), calibration());
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_LT(seconds, 10) << "of one core";
  ASSERT_EQ(result.best.size(), 3u);
  ASSERT_TRUE(result.own);
  const auto& hardware = catalog().find_hardware(request.run.hardware);
  for (const auto& choice : result.best) {
    EXPECT_LE(choice.step_s, result.own->step_s * 1.001);
    EXPECT_LE(choice.train_memory.total(), hardware.memory_bytes);
    EXPECT_THAT(errors(choice.run), testing::IsEmpty());
    double sum = 0;
    for (const auto& s : choice.stages) sum += s.name == "step_s" ? 0 : s.seconds;
    EXPECT_LE(sum, choice.step_s * 1.001);  // the rest is rewards and bookkeeping
  }
  EXPECT_GT(result.num_fitting, 0);
  EXPECT_GT(result.num_layouts, result.num_fitting);
  if (std::getenv("KEEL_SIM_SHOW") != nullptr) {
    printf("%.2f s\n%s\n%s", seconds, plan_text(result, hardware).c_str(),
           plan_config(result.best.front()).c_str());
  }
  const auto again = plan_layouts(request, catalog(), calibration());
  EXPECT_EQ(plan_json(result).dump(), plan_json(again).dump());
}

TEST_F(PlanTest, SaysWhatIsMissing) {
  PlanRequest request;
  request.run.model = "qwen3-235b-a22b";
  request.run.hardware = "ascend-a3-die";
  request.run.devices = 8;
  request.run.workload.prompts = 64;
  request.run.workload.samples_per_prompt = 8;
  request.run.workload.response_len = {4000.0, 16384};
  const auto message = [&] {
    try {
      plan_layouts(request, catalog(), calibration());
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_THAT(message(), testing::HasSubstr("try more devices than 8"));
  request.run.workload.prompts = 0;
  EXPECT_THAT(message(), testing::HasSubstr("--prompts"));
}

}  // namespace
}  // namespace keel::sim
