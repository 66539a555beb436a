#include "keel/balance/expert_placement.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

#include "keel/balance/eplb.h"
#include "keel/balance/test_cases.h"
#include "keel/base/error.h"
#include "keel/base/rng.h"

namespace keel::balance {
namespace {

ExpertLayout layout_of(const OrderedJson& row) {
  return {static_cast<int32_t>(row["load"][0].size()), row["replicas"], row["gpus"]};
}

TEST(Eplb, ReproducesThePublishedPlacements) {
  int count = 0;
  for (const OrderedJson& row : case_rows("exact_vectors")) {
    if (row["fn"] != "eplb") continue;
    for (size_t layer = 0; layer < row["load"].size(); ++layer) {
      const std::vector<int64_t> loads = row["load"][layer];
      const auto placement = eplb(loads, {layout_of(row), row["groups"], row["nodes"]});
      EXPECT_EQ(placement.expert_of, row["result"][layer].get<std::vector<int32_t>>());
      EXPECT_EQ(placement.count, row["count"][layer].get<std::vector<int32_t>>());
      ++count;
    }
  }
  EXPECT_GE(count, 8);
}

TEST(Eplb, ReadmeExample) {
  const std::vector<int64_t> loads = {90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86};
  const auto placement = eplb(loads, {{12, 16, 8}, 4, 2});
  EXPECT_EQ(placement.expert_of,
            (std::vector<int32_t>{5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1}));
}

TEST(Placement, BeatsTheBestKnownOnTheCases) {
  double sum = 0;
  int count = 0;
  for (const OrderedJson& row : case_rows("eplb")) {
    double mean = 0;
    for (const OrderedJson& load : row["load"]) {
      const std::vector<double> loads = load;
      const auto placement = place_experts(loads, layout_of(row));
      ASSERT_EQ(validate(layout_of(row), placement), "") << row["id"];
      const double value = imbalance(loads, layout_of(row), placement);
      EXPECT_GE(value, imbalance_bound(loads, layout_of(row)) - 1e-9);
      mean += value / static_cast<double>(row["load"].size());
    }
    EXPECT_LE(mean, row["mean_values"]["best"].get<double>() + 0.015) << row["id"];
    sum += mean - row["mean_values"]["best"].get<double>();
    ++count;
  }
  ASSERT_GT(count, 0);
  EXPECT_LE(sum / count, 0.001);
}

TEST(Placement, FollowsDriftWithFewMoves) {
  const auto path = test::cases("eplb_stream.jsonl");
  if (path.empty()) GTEST_SKIP() << "no ../shared/cases/eplb_stream.jsonl";
  for (const OrderedJson& row : read_lines(path)) {
    const std::vector<std::vector<double>> loads = row["load"];
    const auto layout = layout_of(row);
    RouterForecast forecast(layout.num_experts);
    auto online = place_experts(loads[0], layout);
    auto exact = online;
    forecast.observe(loads[0]);
    double online_sum = 0;
    double exact_sum = 0;
    int32_t moved = 0;
    const int32_t allowed = layout.num_replicas / 15;
    for (size_t s = 1; s < loads.size(); ++s) {
      const auto next = follow_load(forecast.next(), layout, online, allowed);
      ASSERT_EQ(validate(layout, next), "");
      ASSERT_LE(count_moved(layout, online, next), allowed);
      moved += count_moved(layout, online, next);
      online = next;
      forecast.observe(loads[s]);
      online_sum += imbalance(loads[s], layout, online);
      exact = follow_load(loads[s], layout, exact, layout.num_replicas, {.tolerance = 0.02});
      exact_sum += imbalance(loads[s], layout, exact);
    }
    const auto steps = static_cast<double>(loads.size() - 1);
    const OrderedJson& policies = row["policies"];
    EXPECT_LT(online_sum / steps, policies["previous_batch"]["mean"].get<double>() + 0.01)
        << row["id"];
    EXPECT_LE(moved, policies["window10_every10"]["moved"]) << row["id"];
    EXPECT_LE(exact_sum / steps, 1.03) << row["id"];
    if (row["id"] == "t000") {
      EXPECT_LE(online_sum / steps, 1.13);
    }
  }
}

TEST(Placement, KeepsStillWhenNothingMayMove) {
  const std::vector<double> before = {4, 3, 2, 1};
  const std::vector<double> after = {5, 1, 1, 5};
  const ExpertLayout layout{4, 4, 2};
  const auto placement = place_experts(before, layout);
  EXPECT_EQ(follow_load(after, layout, placement, 0).expert_of, placement.expert_of);
  const auto moved = follow_load(after, layout, placement, 4);
  EXPECT_LT(imbalance(after, layout, moved), imbalance(after, layout, placement));
  EXPECT_EQ(count_moved(layout, placement, placement), 0);
  auto turned = placement;  // other slots of the same GPU: nothing to fetch
  std::swap(turned.expert_of[0], turned.expert_of[1]);
  EXPECT_EQ(count_moved(layout, placement, turned), 0);
}

RC_GTEST_PROP(Placement, AnyLoadGivesAValidPlacement, ()) {
  const auto gpus = *rc::gen::inRange<int32_t>(1, 9);
  const auto experts = *rc::gen::inRange<int32_t>(1, 40);
  const int32_t least = (experts + gpus - 1) / gpus;
  const ExpertLayout layout{experts, gpus * *rc::gen::inRange<int32_t>(least, least + 5), gpus};
  const auto load = rc::gen::map(
      rc::gen::oneOf(rc::gen::just(0), rc::gen::inRange(0, 20), rc::gen::inRange(0, 100000)),
      [](int x) { return static_cast<double>(x); });
  const auto loads = *rc::gen::container<std::vector<double>>(experts, load);
  const PlacementOptions options{.effort = 3000};
  const auto placement = place_experts(loads, layout, options);
  RC_ASSERT(validate(layout, placement) == "");
  RC_ASSERT(imbalance(loads, layout, placement) >= imbalance_bound(loads, layout) - 1e-9);
  RC_ASSERT(placement.expert_of == place_experts(loads, layout, options).expert_of);
  const std::vector<double> other(loads.rbegin(), loads.rend());
  const auto next = follow_load(other, layout, placement, 3, options);
  RC_ASSERT(validate(layout, next) == "");
  RC_ASSERT(count_moved(layout, placement, next) <= 3);
  RC_ASSERT(imbalance(other, layout, next) <= imbalance(other, layout, placement) + 1e-9);
}

TEST(Placement, WrongInputIsNamed) {
  const std::vector<double> loads = {1, 2};
  const std::vector<double> negative = {1, -2};
  const std::vector<double> infinite = {1, std::numeric_limits<double>::infinity()};
  EXPECT_THROW(place_experts(negative, {2, 2, 1}), Error);
  EXPECT_THROW(place_experts(infinite, {2, 2, 1}), Error);
  EXPECT_THROW(place_experts(loads, {2, 3, 2}), Error);
  EXPECT_THROW(place_experts(loads, {2, 1, 1}), Error);
  EXPECT_THROW(place_experts(loads, {3, 3, 1}), Error);
  EXPECT_THROW(place_experts(loads, {2, 2, 0}), Error);
  EXPECT_THROW(follow_load(loads, {2, 2, 1}, {{0, 0}, {2, 0}}, 1), Error);
  EXPECT_THROW(RouterForecast(0), Error);
  EXPECT_THROW(RouterForecast(3).observe(loads), Error);
  const std::vector<int64_t> counts = {1, 2};
  EXPECT_THROW(eplb(counts, {{2, 3, 2}, 1, 1}), Error);
  EXPECT_THROW(eplb(counts, {{2, 2, 1}, 0, 1}), Error);
}

TEST(Placement, ValidateSeesFaults) {
  const ExpertLayout layout{2, 4, 2};
  EXPECT_EQ(validate(layout, {{0, 1, 1, 1}, {1, 3}}), "");
  EXPECT_NE(validate(layout, {{0, 1, 1}, {1, 2}}), "");
  EXPECT_NE(validate(layout, {{1, 1, 1, 1}, {0, 4}}), "");
  EXPECT_NE(validate(layout, {{0, 1, 1, 1}, {2, 2}}), "");
  EXPECT_NE(validate(layout, {{0, 1, 2, 1}, {1, 2}}), "");
}

}  // namespace
}  // namespace keel::balance
