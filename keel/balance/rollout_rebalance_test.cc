#include "keel/balance/rollout_rebalance.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "keel/balance/test_cases.h"
#include "keel/base/error.h"

namespace keel::balance {
namespace {

double no_clock() { return 0; }

void expect_published(const OrderedJson& row) {
  const auto out = run_rollout_rebalance_case(row, no_clock).front();
  EXPECT_EQ(out["plan"], row["tasks"]) << row["id"];
  EXPECT_EQ(out["score"], row["bucket_after"]) << row["id"];
}

TEST(RolloutRebalance, GoldenStates) {
  const auto rows = read_lines(test::golden("sched/rollout_rebalance_states.jsonl"));
  EXPECT_EQ(rows.size(), 12u);
  for (const auto& row : rows) expect_published(row);
}

TEST(RolloutRebalance, AllCases) {
  const auto path = test::cases("rollout_rebalance_states.jsonl");
  if (path.empty()) GTEST_SKIP() << "no ../shared/cases/rollout_rebalance_states.jsonl";
  for (const auto& row : read_lines(path)) expect_published(row);
}

RC_GTEST_PROP(RolloutRebalance, PlansAreValid, ()) {
  RolloutLimits limits{{4, 8, 16, 32, 48, 64}, 64};
  std::vector<RolloutRankState> ranks;
  for (int n = *rc::gen::inRange(1, 40); n > 0; --n) {
    RolloutRankState s;
    s.running = *rc::gen::oneOf(rc::gen::inRange(0, 65), rc::gen::element(0, 1, 64));
    s.waiting = *rc::gen::oneOf(rc::gen::just(0), rc::gen::inRange(0, 30));
    s.block_usage = s.running == 0 ? 0 : *rc::gen::inRange(1, 1001) / 1000.0;
    ranks.push_back(s);
  }
  const auto tasks = published_rebalance(ranks, limits);
  RC_ASSERT(validate(ranks, limits, tasks) == "");
  RC_ASSERT(published_rebalance(ranks, limits) == tasks);
}

TEST(RolloutRebalance, WrongInputIsNamed) {
  const RolloutLimits limits{{4, 8}, 8};
  EXPECT_THROW(published_rebalance({}, limits), Error);
  const std::vector<RolloutRankState> negative = {{-1, 0, 0}};
  EXPECT_THROW(published_rebalance(negative, limits), Error);
  const std::vector<RolloutRankState> usage = {{1, 0, 1.5}};
  EXPECT_THROW(published_rebalance(usage, limits), Error);
  const std::vector<RolloutRankState> one = {{3, 0, 0.1}};
  EXPECT_TRUE(published_rebalance(one, limits).empty());
  EXPECT_THROW(published_rebalance(one, {{8, 4}, 8}), Error);
}

TEST(RolloutRebalance, ValidateNamesWhatIsWrong) {
  const RolloutLimits limits{{4, 8}, 8};
  const std::vector<RolloutRankState> ranks = {{8, 2, 0.5}, {1, 0, 0.1}};
  EXPECT_EQ(validate(ranks, limits, std::vector<RolloutTask>{{0, 1, 2, false}}), "");
  EXPECT_NE(validate(ranks, limits, std::vector<RolloutTask>{{0, 1, 1, true}}), "");
  EXPECT_NE(validate(ranks, limits, std::vector<RolloutTask>{{0, 1, 3, false}}), "");
  EXPECT_NE(validate(ranks, limits, std::vector<RolloutTask>{{1, 0, 1, true}}), "");
}

}  // namespace
}  // namespace keel::balance
