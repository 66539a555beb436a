#include "keel/balance/context_parallel.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "keel/balance/test_cases.h"
#include "keel/base/error.h"
#include "keel/base/rng.h"

namespace keel::balance {
namespace {

HdpTask task_of(const OrderedJson& row) {
  HdpTask task{.num_ranks = row["ranks"], .capacity_tokens = row["capacity"], .cost = {}};
  task.cost.compute = {row["c1"], row["c2"]};
  task.cost.ring_latency = row["alpha"];
  task.cost.ring_per_token = row["beta"];
  return task;
}

TEST(ContextGroups, NearTheBoundOnTheCases) {
  double sum = 0;
  double best = 0;
  int count = 0;
  for (const OrderedJson& row : case_rows("hdp")) {
    const std::vector<int64_t> lengths = row["lengths"];
    const auto task = task_of(row);
    const auto plan = plan_context_groups(lengths, task);
    ASSERT_EQ(validate(lengths, task, plan), "") << row["id"];
    const auto bound = row["bound"].get<double>();
    EXPECT_NEAR(plan.lower_bound / bound, 1, 1e-6) << row["id"];
    EXPECT_GE(plan.makespan, plan.lower_bound * (1 - 1e-9));
    sum += plan.makespan / bound;
    best += row["best"]["over_bound"].get<double>();
    ++count;
  }
  ASSERT_GT(count, 0);
  EXPECT_LE(sum / count, best / count + 0.015);
}

TEST(ContextGroups, ShortSequencesStayWholeAndShareAMicroBatch) {
  const std::vector<int64_t> lengths = {100, 100, 100, 100, 800};
  HdpTask task{.num_ranks = 4, .capacity_tokens = 400, .cost = {}};
  task.cost.ring_latency = 10;
  const auto plan = plan_context_groups(lengths, task);
  EXPECT_EQ(validate(lengths, task, plan), "");
  for (const auto& step : plan.steps) {
    for (const int32_t i : step.sequences) {
      EXPECT_GE(step.ranks.size(), i == 4 ? 2u : 1u);
    }
  }
  HdpTask alone{.num_ranks = 1, .capacity_tokens = 200, .cost = {}};
  const std::vector<int64_t> four = {100, 100, 100, 100};
  EXPECT_EQ(plan_context_groups(four, alone).steps.size(), 2u);
}

TEST(ContextGroups, UlyssesWhereItIsCheaper) {
  ContextCost cost{.compute = {100, 1}, .ring_latency = 1000, .ring_per_token = 50};
  cost.a2a_latency = 1500;
  cost.a2a_per_token = 10;
  EXPECT_EQ(choose_context(10000, 4, cost).ulysses, 1);  // not allowed
  cost.max_ulysses = 4;
  EXPECT_EQ(choose_context(10000, 4, cost).ulysses, 4);
  EXPECT_EQ(choose_context(10000, 8, cost).ulysses, 4);  // hybrid: ring of two
  EXPECT_EQ(choose_context(10000, 6, cost).ulysses, 2);
  EXPECT_EQ(choose_context(10000, 1, cost).ulysses, 1);
  cost.ring_latency = cost.ring_per_token = 0;
  EXPECT_EQ(choose_context(10000, 4, cost).ulysses, 1);
}

RC_GTEST_PROP(ContextGroups, PlansAreValidAndDeterministic, ()) {
  const auto lengths = *random_lengths();
  HdpTask task{.num_ranks = *rc::gen::inRange<int32_t>(1, 24), .capacity_tokens = 0, .cost = {}};
  task.capacity_tokens = 131072 / task.num_ranks + *rc::gen::inRange<int64_t>(1, 20000);
  task.cost.compute = {*rc::gen::inRange<int64_t>(0, 60000), *rc::gen::inRange<int64_t>(0, 2)};
  task.cost.ring_latency = *rc::gen::inRange(0, 3000000);
  task.cost.ring_per_token = *rc::gen::inRange(0, 2000);
  task.cost.max_ulysses = *rc::gen::element(1, 4, 6);
  task.cost.a2a_latency = *rc::gen::inRange(0, 1000000);
  task.effort = 2000;
  const auto plan = plan_context_groups(lengths, task);
  RC_ASSERT(validate(lengths, task, plan) == "");
  RC_ASSERT(plan.makespan >= plan.lower_bound * (1 - 1e-9));
  const auto again = plan_context_groups(lengths, task);
  RC_ASSERT(again.makespan == plan.makespan && again.steps.size() == plan.steps.size());
}

TEST(ContextGroups, LargeInputStaysFast) {
  std::vector<int64_t> lengths(100000);
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = 1 + uniform_int(32768, 4, i);
  HdpTask task{.num_ranks = 64, .capacity_tokens = 8704, .cost = {}};
  task.cost.compute = {28011, 1};
  task.cost.ring_latency = 2e6;
  task.cost.ring_per_token = 1000;
  const auto plan = plan_context_groups(lengths, task);
  EXPECT_EQ(validate(lengths, task, plan), "");
  EXPECT_LE(plan.makespan, plan.lower_bound * 1.02);
}

TEST(ContextGroups, WrongInputIsNamed) {
  const std::vector<int64_t> lengths = {100, 50};
  const HdpTask good{.num_ranks = 2, .capacity_tokens = 50, .cost = {}};
  EXPECT_NO_THROW(plan_context_groups(lengths, good));
  HdpTask task = good;
  task.capacity_tokens = 49;
  EXPECT_THROW(plan_context_groups(lengths, task), Error);
  task = good;
  task.num_ranks = 0;
  EXPECT_THROW(plan_context_groups({}, task), Error);
  task = good;
  task.cost.ring_latency = -1;
  EXPECT_THROW(plan_context_groups(lengths, task), Error);
  const std::vector<int64_t> negative = {-1};
  EXPECT_THROW(plan_context_groups(negative, good), Error);
  EXPECT_TRUE(plan_context_groups({}, good).steps.empty());
}

TEST(ContextGroups, ValidateSeesFaults) {
  const std::vector<int64_t> lengths = {100, 50};
  const HdpTask task{.num_ranks = 2, .capacity_tokens = 50, .cost = {}};
  const auto fault = [&](std::vector<HdpStep> steps, double makespan) {
    return validate(lengths, task, {std::move(steps), makespan, 0, 0});
  };
  EXPECT_EQ(fault({{{0, 1}, {0}}, {{0}, {1}}}, 100), "");
  EXPECT_NE(fault({{{0, 1}, {0}}, {{0}, {1}}}, 99), "");
  EXPECT_NE(fault({{{0}, {0}}, {{0}, {1}}}, 150), "");
  EXPECT_NE(fault({{{0, 1}, {0}}}, 50), "");
  EXPECT_NE(fault({{{0, 1}, {0, 0}}, {{0}, {1}}}, 150), "");
  EXPECT_NE(fault({{{1, 0}, {0}}, {{0}, {1}}}, 100), "");
  EXPECT_NE(fault({{{0, 2}, {0}}, {{0}, {1}}}, 100), "");
  EXPECT_NE(fault({{{}, {0}}, {{0}, {1}}}, 100), "");
}

}  // namespace
}  // namespace keel::balance
