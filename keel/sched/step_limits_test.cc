#include "keel/sched/step_limits.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include "keel/base/error.h"

namespace keel::sched {
namespace {

using Sizes = std::vector<int32_t>;

TEST(StepLimits, PaddedRows) {
  const Sizes buckets = {4, 8, 16};
  EXPECT_EQ(padded_rows(buckets, 0), 4);
  EXPECT_EQ(padded_rows(buckets, 8), 8);
  EXPECT_EQ(padded_rows(buckets, 9), 16);
  EXPECT_EQ(padded_rows(buckets, 17), 17);
  EXPECT_EQ(padded_rows({}, 5), 5);
}

TEST(StepLimits, TheFullestRankDecides) {
  const Sizes buckets = {4, 8, 16, 64};
  const std::vector<RankLoad> decode = {{3, 0, 16, 0}, {7, 0, 16, 0}};
  EXPECT_EQ(agree_on_step(decode, buckets, 64).padded_rows, 8);
  EXPECT_TRUE(agree_on_step(decode, buckets, 64).limits.admit);
  const std::vector<RankLoad> prompt = {{3, 1, 16, 100}, {7, 0, 16, 0}};
  EXPECT_EQ(agree_on_step(prompt, buckets, 64).padded_rows, 64) << "filled by the prompt";
  const std::vector<RankLoad> small = {{3, 1, 16, 10}, {7, 0, 16, 0}};
  EXPECT_EQ(agree_on_step(small, buckets, 64).padded_rows, 16);
  const std::vector<RankLoad> full = {{16, 3, 16, 0}, {7, 2, 16, 40}};
  EXPECT_FALSE(agree_on_step(full, buckets, 64).limits.admit);
  EXPECT_THROW(agree_on_step({}, buckets, 64), Error);
  EXPECT_THROW(agree_on_step(decode, buckets, 0), Error);
}

RC_GTEST_PROP(StepLimits, StepsHoldAllDecodesAndEveryPromptMovesOn, ()) {
  Sizes buckets = *rc::gen::container<Sizes>(rc::gen::inRange(1, 300));
  std::sort(buckets.begin(), buckets.end());
  std::vector<RankLoad> ranks(*rc::gen::inRange<size_t>(1, 9));
  int32_t running = 0;
  int64_t pending = 0;
  for (auto& r : ranks) {
    r.max_seqs = *rc::gen::inRange(1, 65);
    r.running = *rc::gen::inRange(0, r.max_seqs + 1);
    r.waiting = *rc::gen::inRange(0, 4);
    r.pending_rows = *rc::gen::inRange(0, 500);
    running = std::max(running, r.running);
    pending = std::max(pending, r.pending_rows);
  }
  const int32_t max_rows = *rc::gen::inRange(65, 400);
  const auto step = agree_on_step(ranks, buckets, max_rows);
  RC_ASSERT(step.padded_rows <= max_rows);
  RC_ASSERT(step.padded_rows >= running);
  if (pending > 0) RC_ASSERT(step.padded_rows > running);
}

RC_GTEST_PROP(StepLimits, NeverSlowerThanPlainDecoding, ()) {
  std::vector<Draft> drafts(*rc::gen::inRange<size_t>(0, 20));
  for (auto& d : drafts) {
    float p = 1;
    for (int n = *rc::gen::inRange(0, 9); n > 0; --n) {
      p *= static_cast<float>(*rc::gen::inRange(0, 101)) / 100;
      d.probabilities.push_back(p);
    }
  }
  const VerifyCost cost = {static_cast<double>(*rc::gen::inRange(0, 1000)),
                           static_cast<double>(*rc::gen::inRange(0, 100))};
  const int32_t max_rows = *rc::gen::inRange(0, 60);
  const auto taken = budget_drafts(drafts, cost, max_rows);
  RC_ASSERT(std::accumulate(taken.begin(), taken.end(), 0) <= max_rows);
  const auto plain = static_cast<double>(drafts.size());
  double tokens = plain, rows = plain;
  for (size_t d = 0; d < drafts.size(); ++d) {
    RC_ASSERT(taken[d] <= static_cast<int32_t>(drafts[d].probabilities.size()));
    for (int32_t i = 0; i < taken[d]; ++i) tokens += drafts[d].probabilities[i];
    rows += taken[d];
  }
  const auto us = [&](double r) { return cost.fixed_us + cost.row_us * r; };
  RC_ASSERT(tokens * us(plain) >= plain * us(rows) * (1 - 1e-9));
}

TEST(StepLimits, DraftsGoWhereTheyAreLikely) {
  const std::vector<Draft> drafts = {{{1, 2}, {-1, 0}, {0.9F, 0.8F}},
                                     {{3, 4}, {-1, 0}, {0.3F, 0.1F}}};
  EXPECT_EQ(budget_drafts(drafts, {100, 1}, 100), (Sizes{2, 2}));
  EXPECT_EQ(budget_drafts(drafts, {100, 1}, 2), (Sizes{2, 0}));
  EXPECT_EQ(budget_drafts(drafts, {1, 1}, 100), (Sizes{2, 0}));
  EXPECT_EQ(budget_drafts(drafts, {0, 1}, 100), (Sizes{0, 0}));
}

}  // namespace
}  // namespace keel::sched
