#include "keel/balance/layout.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <functional>

#include "keel/balance/interleave.h"
#include "keel/balance/pipeline_split.h"
#include "keel/balance/test_cases.h"
#include "keel/base/error.h"

namespace keel::balance {
namespace {

constexpr LayoutModel kMoe{48, 32, 4, 6144, 128, 768};
constexpr LayoutModel kDense{36, 32, 8, 12288, 0, 0};

TEST(Layout, LegalOnes) {
  EXPECT_TRUE(layout_faults(kDense, {.tp = 8, .pp = 4, .dp = 2}, 64).empty());
  EXPECT_TRUE(layout_faults(kMoe, {.tp = 8, .ep = 16, .dp = 2}, 16).empty());  // KV heads copied
  EXPECT_TRUE(layout_faults(kMoe, {.cp = 8, .ulysses = 4, .ep = 8}, 8).empty());
  EXPECT_TRUE(layout_faults(kDense, {}, 1).empty());
}

TEST(Layout, FaultsSayWhatToChange) {
  const auto only = [](const LayoutModel& m, const Layout& l, int32_t world) {
    const auto faults = layout_faults(m, l, world);
    EXPECT_EQ(faults.size(), 1u);
    return faults.empty() ? "" : faults[0];
  };
  EXPECT_EQ(only(kDense, {.tp = 2, .dp = 3}, 8),
            "[layout.dp] expected tp * pp * cp * dp = 8 ranks, got 2 * 1 * 1 * 3; try dp = 4");
  EXPECT_EQ(
      only(kDense, {.tp = 2, .cp = 5}, 8),
      "[layout] expected tp * pp * cp that divides 8 ranks, got 2 * 1 * 5 = 10; try 10 ranks");
  EXPECT_EQ(only({36, 28, 2, 1260, 0, 0}, {.tp = 6}, 6),
            "[layout.tp] expected a divisor of 28 heads, got 6; try 4 or 7");
  EXPECT_EQ(only(kDense, {.pp = 40}, 40),
            "[layout.pp] expected at most 36 stages (one layer each), got 40; try 36");
  EXPECT_EQ(only({48, 24, 4, 6144, 0, 0}, {.cp = 8, .ulysses = 3}, 8),
            "[layout.ulysses] expected a divisor of cp = 8, got 3; try 2 or 4");
  EXPECT_EQ(only(kMoe, {.ep = 16, .dp = 8}, 8),
            "[layout.ep] expected ep * etp that divides the 8 ranks of a stage (tp * cp * dp), got "
            "16 * 1; try 8");
  EXPECT_EQ(only(kDense, {.ep = 2, .dp = 2}, 2),
            "[layout.ep] expected 1 for a model without experts, got 2");
  EXPECT_EQ(only(kMoe, {.tp = 0}, 1), "[layout.tp] expected a degree >= 1, got 0; try 1");
  EXPECT_THROW(layout_faults(kMoe, {}, 0), Error);
}

TEST(Layout, ListsEveryLegalOne) {
  const auto all = legal_layouts(kMoe, 16);
  EXPECT_FALSE(all.empty());
  for (const auto& l : all) EXPECT_TRUE(layout_faults(kMoe, l, 16).empty());
  const Layout wanted{.tp = 4, .ep = 8, .etp = 2, .dp = 4};
  EXPECT_NE(std::find(all.begin(), all.end(), wanted), all.end());
  for (const auto& l : legal_layouts(kDense, 12)) EXPECT_NE(l.tp % 3, 0);
}

TEST(Interleave, RoundOrderAndItsInverse) {
  const auto plan = interleave(3, 2, 2);
  EXPECT_EQ(plan.order, (std::vector<int32_t>{0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(plan.restore, (std::vector<int32_t>{0, 3, 1, 4, 2, 5}));  // arange(6).view(2, 3).T
  EXPECT_EQ(plan.rank_begin, (std::vector<int32_t>{0, 3, 6}));
  EXPECT_EQ(validate(plan), "");
  const std::vector<int32_t> rows = {10, 11, 20, 21, 30, 31};
  const auto run = permuted<int32_t>(rows, plan.order);
  EXPECT_EQ(run, (std::vector<int32_t>{10, 20, 30, 11, 21, 31}));
  EXPECT_EQ(permuted<int32_t>(run, plan.restore), rows);
  EXPECT_THROW(interleave(-1, 2, 1), Error);
  EXPECT_THROW(interleave(1, 2, 0), Error);
  EXPECT_THROW(interleave(1 << 20, 1 << 20, 1), Error);
  EXPECT_NE(validate({{0, 1}, {1, 0}, {0, 2}}), "");
  EXPECT_NE(validate({{0, 1}, {0, 1}, {0, 1}}), "");
  EXPECT_NE(validate({{0, 1}, {0, 1}, {0, 3, 2}}), "");
}

RC_GTEST_PROP(Interleave, SamplesOfAPromptSpreadOverRanks, ()) {
  const auto prompts = *rc::gen::inRange<int32_t>(0, 50);
  const auto samples = *rc::gen::inRange<int32_t>(0, 20);
  const auto ranks = *rc::gen::inRange<int32_t>(1, 30);
  const auto plan = interleave(prompts, samples, ranks);
  RC_ASSERT(validate(plan) == "");
  RC_ASSERT(std::ssize(plan.order) == prompts * samples);
  for (size_t r = 1; r < plan.rank_begin.size(); ++r) {
    const int32_t size = plan.rank_begin[r] - plan.rank_begin[r - 1];
    RC_ASSERT(size - prompts * samples / ranks <= 1);
  }
}

PipelineTask uniform_task(int32_t layers, int32_t stages) {
  PipelineTask task{.layers = {}, .embedding = {}, .head = {}, .num_stages = stages};
  task.layers.assign(layers, {10, 100, 5});
  task.num_micro_batches = 8;
  return task;
}

TEST(Pipeline, HeadAndEmbeddingCountAsWork) {
  auto task = uniform_task(16, 4);
  auto plan = split_pipeline(task);
  EXPECT_EQ(validate(task, plan), "");
  EXPECT_EQ(plan.layer_begin, (std::vector<int32_t>{0, 4, 8, 12, 16}));
  EXPECT_EQ(plan.step_time, (8 + 4 - 1) * 40);
  EXPECT_NEAR(plan.bubble, 3.0 / 11, 1e-12);
  task.head.time = 20;
  task.embedding.time = 10;
  plan = split_pipeline(task);
  EXPECT_EQ(validate(task, plan), "");
  EXPECT_EQ(*std::max_element(plan.stage_time.begin(), plan.stage_time.end()), 50);
  EXPECT_LE(plan.layer_begin[4] - plan.layer_begin[3], 3);
}

TEST(Pipeline, MemoryOfEarlyStagesLimitsThem) {
  auto task = uniform_task(11, 3);
  task.memory_bytes = 450;  // three layers of 100 + 3 * 5, four of 100 + 2 * 5 or of 100 + 5
  const auto plan = split_pipeline(task);
  EXPECT_EQ(validate(task, plan), "");
  EXPECT_EQ(plan.layer_begin, (std::vector<int32_t>{0, 3, 7, 11}));
  EXPECT_EQ(plan.stage_memory, (std::vector<int64_t>{345, 440, 420}));
  task.memory_bytes = 300;
  EXPECT_THROW(split_pipeline(task), Error);
  task.memory_bytes = -1;
  EXPECT_THROW(split_pipeline(task), Error);
  EXPECT_THROW(split_pipeline(uniform_task(3, 0)), Error);
}

RC_GTEST_PROP(Pipeline, IsOptimalAndValid, ()) {
  PipelineTask task{.layers = {}, .embedding = {}, .head = {}};
  task.num_stages = *rc::gen::inRange(1, 5);
  task.num_micro_batches = *rc::gen::inRange(1, 9);
  const auto times = *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, 100));
  for (size_t i = 0; i < std::min<size_t>(times.size(), 9); ++i) {
    task.layers.push_back({times[i], 1, 1});
  }
  task.embedding.time = *rc::gen::inRange<int64_t>(0, 200);
  task.head.time = *rc::gen::inRange<int64_t>(0, 200);
  const auto plan = split_pipeline(task);
  RC_ASSERT(validate(task, plan) == "");
  // All splits into stages, by recursion over stage bounds.
  const auto n = static_cast<int32_t>(task.layers.size());
  int64_t best = -1;
  const std::function<void(int32_t, int32_t, int64_t)> go = [&](int32_t stage, int32_t from,
                                                                int64_t slowest) {
    if (stage == task.num_stages) {
      if (from == n && (best < 0 || slowest < best)) best = slowest;
      return;
    }
    int64_t time = (stage == 0 ? task.embedding.time : 0) +
                   (stage == task.num_stages - 1 ? task.head.time : 0);
    for (int32_t to = from; to <= n; ++to) {
      if (to > from) time += task.layers[to - 1].time;
      if (n < task.num_stages || to > from) go(stage + 1, to, std::max(slowest, time));
    }
  };
  go(0, 0, 0);
  RC_ASSERT(*std::max_element(plan.stage_time.begin(), plan.stage_time.end()) == best);
}

}  // namespace
}  // namespace keel::balance
