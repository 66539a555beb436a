#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "keel/balance/deal.h"
#include "keel/balance/micro_batch.h"
#include "keel/base/error.h"

namespace keel::balance {
namespace {

std::vector<PackItem> plain(std::initializer_list<int64_t> tokens) {
  std::vector<PackItem> items;
  for (const int64_t t : tokens) items.push_back({t, -1, 0});
  return items;
}

TEST(MicroBatch, FewestUnderTheCap) {
  const auto items = plain({60, 50, 40, 30, 20});
  const auto plan = pack_micro_batches(items, {100, 1});
  EXPECT_EQ(validate(items, {100, 1}, plan), "");
  ASSERT_EQ(plan.micro_batches.size(), 2u);
  EXPECT_EQ(plan.micro_batches[0].tokens, 100);
}

TEST(MicroBatch, BalancesWhatFits) {
  const auto items = plain({10, 10, 10, 10, 10, 10, 10, 10});
  const auto plan = pack_micro_batches(items, {70, 1});
  ASSERT_EQ(plan.micro_batches.size(), 2u);
  EXPECT_EQ(plan.micro_batches[0].tokens, 40);
}

TEST(MicroBatch, OversizedItemStaysAlone) {
  const auto items = plain({500, 10, 10});
  const auto plan = pack_micro_batches(items, {100, 1});
  EXPECT_EQ(validate(items, {100, 1}, plan), "");
  ASSERT_EQ(plan.micro_batches.size(), 2u);
  EXPECT_EQ(plan.micro_batches[0].items, std::vector<int32_t>{0});
}

TEST(MicroBatch, GroupPaysItsPrefixOnce) {
  std::vector<PackItem> items;
  for (int i = 0; i < 8; ++i) items.push_back({10, i / 4, 60});
  const auto plan = pack_micro_batches(items, {100, 1});
  EXPECT_EQ(validate(items, {100, 1}, plan), "");
  ASSERT_EQ(plan.micro_batches.size(), 2u);  // 60 + 4 * 10 each; mixed groups would need more
  EXPECT_EQ(plan.micro_batches[0].items, (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST(MicroBatch, SplitsGroupsWhereThatSavesAMicroBatch) {
  std::vector<PackItem> items;  // three groups of 60: two micro-batches only with a split
  for (int i = 0; i < 30; ++i) items.push_back({5, i / 10, 10});
  const auto plan = pack_micro_batches(items, {100, 1});
  EXPECT_EQ(validate(items, {100, 1}, plan), "");
  EXPECT_EQ(plan.micro_batches.size(), 2u);
}

TEST(MicroBatch, GroupOverTheCapIsCut) {
  std::vector<PackItem> items;
  for (int i = 0; i < 10; ++i) items.push_back({30, 7, 20});
  const auto plan = pack_micro_batches(items, {100, 1});
  EXPECT_EQ(validate(items, {100, 1}, plan), "");
  EXPECT_EQ(plan.micro_batches.size(), 5u);
}

TEST(MicroBatch, MinimumCountAndEmptyInput) {
  const auto items = plain({10, 20, 30});
  auto plan = pack_micro_batches(items, {100, 2});
  EXPECT_EQ(validate(items, {100, 2}, plan), "");
  ASSERT_EQ(plan.micro_batches.size(), 2u);
  EXPECT_EQ(plan.micro_batches[0].tokens, 30);
  plan = pack_micro_batches(items, {100, 5});
  EXPECT_EQ(plan.micro_batches.size(), 5u);
  EXPECT_EQ(validate(items, {100, 5}, plan), "");
  EXPECT_EQ(pack_micro_batches({}, {100, 1}).micro_batches.size(), 1u);
}

TEST(MicroBatch, WrongInputIsNamed) {
  EXPECT_THROW(pack_micro_batches(plain({1}), {0, 1}), Error);
  EXPECT_THROW(pack_micro_batches(plain({-1}), {10, 1}), Error);
  const std::vector<PackItem> items = {{1, 0, 5}, {1, 0, 6}};
  EXPECT_THROW(pack_micro_batches(items, {10, 1}), Error);
}

TEST(MicroBatch, ValidateSeesFaults) {
  const auto items = plain({60, 60});
  EXPECT_NE(validate(items, {100, 1}, {{{{0, 1}, 120}}}), "");
  EXPECT_NE(validate(items, {100, 1}, {{{{0}, 60}}}), "");
  EXPECT_NE(validate(items, {100, 1}, {{{{0}, 60}, {{1}, 59}}}), "");
  EXPECT_NE(validate(items, {100, 1}, {{{{0}, 60}, {{0}, 60}}}), "");
}

TEST(MicroBatch, RandomPlansAreValidDeterministicAndNearTheBound) {
  std::mt19937 rng(3);
  for (int round = 0; round < 300; ++round) {
    const bool groups = round % 2 == 1;
    std::vector<PackItem> items(rng() % 60);
    for (size_t i = 0; i < items.size(); ++i) {
      items[i].tokens = 1 + rng() % 200;
      if (groups) {
        items[i].group = static_cast<int64_t>(i / 8);
        items[i].prefix_tokens = 20 + 7 * items[i].group;
      }
    }
    const PackLimits limits{400, 1 + static_cast<int32_t>(rng() % 3)};
    const auto plan = pack_micro_batches(items, limits);
    ASSERT_EQ(validate(items, limits, plan), "") << round;
    const auto again = pack_micro_batches(items, limits);
    ASSERT_EQ(plan.micro_batches.size(), again.micro_batches.size());
    for (size_t b = 0; b < plan.micro_batches.size(); ++b) {
      ASSERT_EQ(plan.micro_batches[b].items, again.micro_batches[b].items);
    }
    if (groups) continue;
    int64_t total = 0;
    for (const auto& item : items) total += item.tokens;
    const int64_t bound = std::max<int64_t>((total + 399) / 400, limits.min_count);
    ASSERT_LE(static_cast<int64_t>(plan.micro_batches.size()), bound + 1);
  }
}

TEST(Deal, EqualCountsAndLevelledCosts) {
  std::mt19937 rng(5);
  for (const int32_t ranks : {1, 2, 3, 8}) {
    for (const size_t n : {0u, 1u, 5u, 64u}) {
      std::vector<int64_t> costs(n);
      for (auto& c : costs) c = rng() % 1000;
      const auto plan = deal(costs, ranks);
      EXPECT_EQ(validate(costs, ranks, plan), "");
      if (n < 64) continue;
      std::vector<int64_t> load;
      for (const auto& rank : plan.ranks) {
        load.push_back(0);
        for (const int32_t i : rank) load.back() += costs[i];
      }
      const auto [low, high] = std::minmax_element(load.begin(), load.end());
      EXPECT_LT(*high - *low, 500);
    }
  }
  EXPECT_THROW(deal({}, 0), Error);
  EXPECT_NE(validate(std::vector<int64_t>{1, 2}, 2, {{{0}, {0}}}), "");
  EXPECT_NE(validate(std::vector<int64_t>{1, 2}, 2, {{{0, 1}, {}}}), "");
}

}  // namespace
}  // namespace keel::balance
