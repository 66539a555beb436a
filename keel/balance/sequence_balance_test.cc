#include "keel/balance/sequence_balance.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include "keel/balance/test_cases.h"
#include "keel/base/error.h"
#include "keel/base/rng.h"

namespace keel::balance {
namespace {

constexpr SequenceCost kTokens{1, 0};

TEST(SequenceBalance, ReachesTheBestKnownOnTheCases) {
  for (const CountMode mode : {CountMode::kEqual, CountMode::kFree}) {
    const char* name = mode == CountMode::kEqual ? "equal" : "free";
    double sum = 0;
    int count = 0;
    for (const OrderedJson& row : case_rows("seqlen_balance")) {
      if (!row["best"].contains(name)) continue;
      const std::vector<int64_t> lengths = row["lengths"];
      const SequenceCost cost{row["c1"], row["c2"]};
      const SequenceBalanceOptions options{.mode = mode};
      const auto plan = balance_sequences(lengths, row["ranks"], cost, options);
      ASSERT_EQ(validate(lengths, row["ranks"], cost, options, plan), "") << row["id"];
      EXPECT_LE(row["best"][name]["bound"].get<double>() * (row["best"][name]["proven"] ? 1 : 0),
                plan.max_cost());
      EXPECT_LE(plan.lower_bound, row["best"][name]["max"]) << row["id"];
      const double ratio = plan.max_cost() / row["best"][name]["max"].get<double>();
      EXPECT_LE(ratio, 1.003) << row["id"];
      sum += ratio;
      ++count;
    }
    ASSERT_GT(count, 0);
    EXPECT_LE(sum / count, 1.0005) << name;
  }
}

TEST(SequenceBalance, SmallCasesByHand) {
  const std::vector<int64_t> lengths = {7, 6, 5, 4, 4};  // LPT ends at 11 + 4, the optimum is 13
  const auto plan = balance_sequences(lengths, 2, kTokens, {});
  EXPECT_EQ(plan.ranks[1], (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(plan.max_cost(), 13);
  EXPECT_EQ(plan.lower_bound, 13);
  // A lone giant cannot be split: equal counts add the lightest to it.
  const std::vector<int64_t> giant = {100, 3, 2, 1};
  EXPECT_EQ(balance_sequences(giant, 2, kTokens, {}).max_cost(), 100);
  const auto equal = balance_sequences(giant, 2, kTokens, {.mode = CountMode::kEqual});
  EXPECT_EQ(equal.max_cost(), 101);
  EXPECT_EQ(equal.lower_bound, 101);
}

TEST(SequenceBalance, CapIsKeptWhereItCanBe) {
  // Attention makes one long sequence as dear as many short ones; memory counts tokens.
  const std::vector<int64_t> lengths = {1000, 100, 100, 100, 100, 100, 100, 100, 100};
  const SequenceCost square{0, 1};
  const auto free = balance_sequences(lengths, 2, square, {});
  EXPECT_EQ(free.ranks[1].size(), 8u);
  const SequenceBalanceOptions capped{.cap_tokens = 1000};
  const auto plan = balance_sequences(lengths, 2, square, capped);
  EXPECT_TRUE(plan.within_cap);
  EXPECT_EQ(validate(lengths, 2, square, capped, plan), "");
  const SequenceBalanceOptions tight{.cap_tokens = 900};
  EXPECT_FALSE(balance_sequences(lengths, 2, square, tight).within_cap);
}

TEST(SequenceBalance, LargeInputsStayFast) {
  std::vector<int64_t> lengths(100000);
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = 1 + uniform_int(32768, 7, i);
  for (const int32_t ranks : {1, 64, 4096, 60000, 200000}) {
    for (const CountMode mode : {CountMode::kFree, CountMode::kEqual}) {
      const auto plan = balance_sequences(lengths, ranks, {28011, 1}, {.mode = mode});
      ASSERT_EQ(validate(lengths, ranks, {28011, 1}, {.mode = mode}, plan), "");
      if (ranks <= 4096) {
        EXPECT_LE(plan.max_cost(), plan.lower_bound * 1.01) << ranks;
      }
    }
  }
}

RC_GTEST_PROP(SequenceBalance, PlansAreValidAndNoWorseThanTheirBound, ()) {
  const auto lengths = *random_lengths();
  const auto ranks = *rc::gen::inRange<int32_t>(1, 40);
  const SequenceCost cost{*rc::gen::inRange<int64_t>(0, 60000), *rc::gen::inRange<int64_t>(0, 2)};
  SequenceBalanceOptions options{.effort = 20000};
  options.mode = *rc::gen::element(CountMode::kFree, CountMode::kEqual);
  if (*rc::gen::arbitrary<bool>()) {
    options.cap_tokens =
        std::accumulate(lengths.begin(), lengths.end(), int64_t{0}) / ranks + 140000;
  }
  const auto plan = balance_sequences(lengths, ranks, cost, options);
  const auto fault = validate(lengths, ranks, cost, options, plan);
  RC_ASSERT(fault.empty() || !plan.within_cap);
  RC_ASSERT(plan.max_cost() >= plan.lower_bound);
  RC_ASSERT(plan.ranks == balance_sequences(lengths, ranks, cost, options).ranks);
  if (options.mode == CountMode::kFree && options.cap_tokens == 0) {  // Graham's bound for LPT
    RC_ASSERT(3 * ranks * plan.max_cost() <=
              (4 * ranks - 1) * std::max(plan.lower_bound, int64_t{1}) * 2);
  }
}

TEST(SequenceBalance, WrongInputIsNamed) {
  const std::vector<int64_t> negative = {1, -1};
  EXPECT_THROW(balance_sequences(negative, 2, kTokens, {}), Error);
  EXPECT_THROW(balance_sequences({}, 0, kTokens, {}), Error);
  EXPECT_THROW(balance_sequences({}, 1, {-1, 0}, {}), Error);
  EXPECT_THROW(balance_sequences({}, 1, kTokens, {.cap_tokens = -1}), Error);
  const std::vector<int64_t> huge = {int64_t{1} << 35, int64_t{1} << 35};
  EXPECT_THROW(balance_sequences(huge, 1, {1, 1}, {}), Error);
  EXPECT_TRUE(balance_sequences({}, 3, kTokens, {}).ranks[2].empty());
}

TEST(SequenceBalance, ValidateSeesFaults) {
  const std::vector<int64_t> lengths = {1, 2, 3};
  const auto fault = [&](SequencePlan plan, SequenceBalanceOptions options = {}) {
    return validate(lengths, 2, kTokens, options, plan);
  };
  EXPECT_EQ(fault({{{0, 1}, {2}}, {3, 3}}), "");
  EXPECT_NE(fault({{{0, 1, 2}}, {6}}), "");
  EXPECT_NE(fault({{{0, 1}, {1}}, {3, 2}}), "");
  EXPECT_NE(fault({{{0, 1}, {}}, {3, 0}}), "");
  EXPECT_NE(fault({{{0, 1}, {2}}, {3, 4}}), "");
  EXPECT_NE(fault({{{1, 0}, {2}}, {3, 3}}), "");
  EXPECT_NE(fault({{{0, 1}, {3}}, {3, 3}}), "");
  EXPECT_NE(fault({{{0, 1, 2}, {}}, {6, 0}}, {.mode = CountMode::kEqual}), "");
  EXPECT_NE(fault({{{0, 1}, {2}}, {3, 3}}, {.cap_tokens = 2}), "");
}

}  // namespace
}  // namespace keel::balance
