#include "keel/balance/lockstep_batches.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "keel/balance/bin_packing.h"
#include "keel/balance/test_cases.h"
#include "keel/base/error.h"
#include "keel/base/rng.h"

namespace keel::balance {
namespace {

double over_mean(std::span<const int64_t> lengths, const LockstepTask& task,
                 const LockstepPlan& plan) {
  double total = 0;
  for (const int64_t s : lengths) total += static_cast<double>(task.cost.of(s));
  return static_cast<double>(plan.lockstep_cost) * task.num_ranks / total;
}

TEST(LockstepBatches, FewestAndLevelOnTheCases) {
  double sum = 0;
  int count = 0;
  for (const OrderedJson& row : case_rows("micro_batches")) {
    const std::vector<int64_t> lengths = row["lengths"];
    const LockstepTask task{row["cap"], row["ranks"], {row["c1"], row["c2"]}, 300000};
    const auto plan = plan_lockstep_batches(lengths, task);
    ASSERT_EQ(validate(lengths, task, plan), "") << row["id"];
    const double ratio = plan.num_positions() / row["best"]["per_rank"].get<double>();
    EXPECT_LE(ratio, row["kind"] == "triplet" ? 1.06 : 1.0) << row["id"];
    EXPECT_LE(plan.lower_bound, row["best"]["per_rank"]) << row["id"];
    sum += over_mean(lengths, task, plan);
    ++count;
  }
  ASSERT_GT(count, 0);
  EXPECT_LE(sum / count, 1.07);
}

TEST(LockstepBatches, GiantsShareAPosition) {
  // Four giants on two ranks: two positions of two giants, not four of one.
  const std::vector<int64_t> lengths = {90, 10, 90, 10, 90, 10, 90, 10};
  const LockstepTask task{.cap_tokens = 90, .num_ranks = 2, .cost = {0, 1}};
  const auto plan = plan_lockstep_batches(lengths, task);
  EXPECT_EQ(validate(lengths, task, plan), "");
  EXPECT_EQ(plan.num_positions(), 3);
  EXPECT_EQ(plan.lockstep_cost, 8100 + 8100 + 200);
}

TEST(LockstepBatches, CheapPositionsAreAtTheEnds) {
  const std::vector<int64_t> lengths = {100, 80, 60, 40, 20};
  const LockstepTask task{.cap_tokens = 100, .num_ranks = 1, .effort = 0};
  const auto plan = plan_lockstep_batches(lengths, task);
  std::vector<int64_t> cost;
  for (const auto& batch : plan.ranks[0]) {
    cost.push_back(0);
    for (const int32_t i : batch) cost.back() += lengths[i];
  }
  const auto top = std::max_element(cost.begin(), cost.end());
  EXPECT_TRUE(std::is_sorted(cost.begin(), top));
  EXPECT_TRUE(std::is_sorted(top, cost.end(), std::greater<>()));
}

TEST(LockstepBatches, OversizedIsAloneAndReported) {
  const std::vector<int64_t> lengths = {500, 10, 10, 0};
  const LockstepTask task{.cap_tokens = 100, .num_ranks = 1};
  const auto plan = plan_lockstep_batches(lengths, task);
  EXPECT_EQ(validate(lengths, task, plan), "");
  EXPECT_EQ(plan.oversized, std::vector<int32_t>{0});
  EXPECT_EQ(plan.num_positions(), 2);
}

TEST(LockstepBatches, LargeInputStaysFast) {
  std::vector<int64_t> lengths(100000);
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = 1 + uniform_int(32768, 9, i);
  const LockstepTask task{34816, 64, {28011, 1}, 1000000};
  const auto plan = plan_lockstep_batches(lengths, task);
  EXPECT_EQ(validate(lengths, task, plan), "");
  EXPECT_LE(plan.num_positions(), plan.lower_bound * 1.01);
  EXPECT_LE(over_mean(lengths, task, plan), 1.02);
}

TEST(BinPacking, FindsExactTriples) {
  std::vector<int64_t> sizes;
  for (uint64_t i = 0; i < 60; ++i) {
    const auto x = static_cast<int64_t>(12500 + uniform_int(3500, 1, i));
    const auto y = static_cast<int64_t>((32768 - x) / 2 - 1 - uniform_int(2048, 2, i));
    sizes.insert(sizes.end(), {x, y, 32768 - x - y});
  }
  EXPECT_GT(best_fit_decreasing(sizes, 32768).size(), 60u);
  EXPECT_EQ(pack_bins(sizes, 32768, 60, 3000000).size(), 60u);
}

RC_GTEST_PROP(LockstepBatches, PlansAreValidAndNoWorseThanBestFit, ()) {
  const auto lengths = *random_lengths();
  const LockstepTask task{*rc::gen::inRange<int64_t>(1, 60000),
                          *rc::gen::inRange<int32_t>(1, 12),
                          {*rc::gen::inRange<int64_t>(0, 60000), *rc::gen::inRange<int64_t>(0, 2)},
                          20000};
  const auto plan = plan_lockstep_batches(lengths, task);
  RC_ASSERT(validate(lengths, task, plan) == "");
  RC_ASSERT(plan.num_positions() >= plan.lower_bound);
  const auto bins = std::ssize(best_fit_decreasing(lengths, task.cap_tokens));
  RC_ASSERT(plan.num_positions() <= (bins + task.num_ranks - 1) / task.num_ranks);
  RC_ASSERT(plan.ranks == plan_lockstep_batches(lengths, task).ranks);
}

TEST(LockstepBatches, WrongInputIsNamed) {
  const std::vector<int64_t> lengths = {1, -1};
  EXPECT_THROW(plan_lockstep_batches(lengths, {.cap_tokens = 10}), Error);
  EXPECT_THROW(plan_lockstep_batches({}, {.cap_tokens = 0}), Error);
  EXPECT_THROW(plan_lockstep_batches({}, {.cap_tokens = 1, .num_ranks = 0}), Error);
  EXPECT_EQ(plan_lockstep_batches({}, {.cap_tokens = 1, .num_ranks = 2}).num_positions(), 0);
}

TEST(LockstepBatches, ValidateSeesFaults) {
  const std::vector<int64_t> lengths = {6, 5, 4};
  const LockstepTask task{.cap_tokens = 10, .num_ranks = 2};
  const auto fault = [&](LockstepPlan plan) { return validate(lengths, task, plan); };
  EXPECT_EQ(fault({{{{0}}, {{1, 2}}}, {}, 1, 9}), "");
  EXPECT_NE(fault({{{{0}}, {{1, 2}}}, {}, 1, 8}), "");
  EXPECT_NE(fault({{{{0, 1}}, {{2}}}, {}, 1, 11}), "");
  EXPECT_NE(fault({{{{0}}, {{1}, {2}}}, {}, 1, 10}), "");
  EXPECT_NE(fault({{{{0}}, {{1}}}, {}, 1, 6}), "");
  EXPECT_NE(fault({{{{0, 2}}, {{1, 2}}}, {}, 1, 10}), "");
  EXPECT_NE(fault({{{{0, 1, 2}}}, {}, 1, 15}), "");
}

}  // namespace
}  // namespace keel::balance
