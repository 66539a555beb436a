#include "keel/balance/attention_partition.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "keel/balance/test_cases.h"
#include "keel/base/error.h"

namespace keel::balance {
namespace {

struct Case {
  std::vector<AttentionRequest> requests;
  AttentionShape shape;
  int32_t cores = 1;
};

Case case_of(const OrderedJson& row) {
  Case c{{}, {row["g"], row["hkv"], row["mbase"], row["sbase"]}, row["cores"]};
  for (const OrderedJson& r : row["requests"]) c.requests.push_back({r[0], r[1]});
  return c;
}

TEST(AttentionSplit, ReproducesThePublishedRule) {
  int count = 0;
  for (const OrderedJson& row : case_rows("attention_partition")) {
    const auto c = case_of(row);
    const auto split = split_contiguous(c.requests, c.shape, c.cores);
    const OrderedJson& expected = row["expected"];
    EXPECT_EQ(split.num_cores, expected["cores_used"]) << row["id"];
    EXPECT_EQ(split.loads, expected["loads"].get<std::vector<int64_t>>()) << row["id"];
    ASSERT_EQ(split.ends.size(), expected["ends"].size());
    for (size_t k = 0; k < split.ends.size(); ++k) {
      const OrderedJson& end = expected["ends"][k];
      EXPECT_EQ(split.ends[k], (ContiguousEnd{end[0], end[1], end[2]})) << row["id"] << " " << k;
    }
    ++count;
  }
  EXPECT_GE(count, 8);
}

TEST(AttentionPlan, NearerTheBoundThanThePublishedRule) {
  double sum = 0;
  double published = 0;
  int count = 0;
  for (const OrderedJson& row : case_rows("attention_partition")) {
    const auto c = case_of(row);
    const auto plan = plan_attention(c.requests, c.shape, c.cores);
    ASSERT_EQ(validate(c.requests, c.shape, c.cores, {}, {}, plan), "") << row["id"];
    const double mean = row["total"].get<double>() / c.cores;
    sum += static_cast<double>(plan.max_load()) / mean;
    published += row["ratios"]["fia"].get<double>();
    ++count;
  }
  ASSERT_GT(count, 0);
  EXPECT_LE(sum, published);
  if (count > 30) {
    EXPECT_LE(sum / count, 1.085);
  }
}

TEST(AttentionPlan, LongRowIsCutShortOnesAreNot) {
  const std::vector<AttentionRequest> requests = {{1, 32768}, {1, 512}, {0, 0}, {1, 700}};
  const AttentionShape shape{.heads_per_kv = 16, .num_kv_heads = 1, .row_tile = 16, .kv_tile = 512};
  const auto plan = plan_attention(requests, shape, 8);
  EXPECT_EQ(validate(requests, shape, 8, {}, {}, plan), "");
  EXPECT_LT(plan.max_load(), plan.lower_bound * 1.05);
  EXPECT_GT(plan.num_partials, 7);
  int runs_of_short = 0;
  for (const auto& core : plan.cores) {
    for (const auto& run : core) {
      EXPECT_NE(run.request, 2);
      runs_of_short += run.request == 1;
    }
  }
  EXPECT_EQ(runs_of_short, 1);
}

TEST(AttentionPlan, CutsDoNotMoveWithTheBatch) {
  // The cut positions of a request are multiples of the split size whatever else runs.
  const AttentionShape shape{.heads_per_kv = 8, .num_kv_heads = 2, .row_tile = 16, .kv_tile = 256};
  std::vector<AttentionRequest> requests = {{1, 20000}};
  for (int more = 0; more < 6; ++more) {
    const auto plan = plan_attention(requests, shape, 24);
    for (const auto& core : plan.cores) {
      for (const auto& run : core) EXPECT_EQ(run.kv_begin % 128, 0);
    }
    requests.push_back({more % 2 == 0 ? 1 : 40, 3000 + 777 * more});
  }
}

RC_GTEST_PROP(AttentionPlan, PlansAreValidAndDeterministic, ()) {
  const AttentionShape shape{*rc::gen::inRange(1, 9), *rc::gen::inRange(1, 4),
                             *rc::gen::element(8, 16, 64, 128),
                             *rc::gen::element(128, 256, 512, 2048)};
  const auto cores = *rc::gen::inRange<int32_t>(1, 40);
  std::vector<AttentionRequest> requests(*rc::gen::inRange<size_t>(0, 20));
  for (auto& r : requests) {
    r.kv_tokens = *rc::gen::oneOf(rc::gen::just<int64_t>(0), rc::gen::inRange<int64_t>(1, 20000));
    r.query_tokens = *rc::gen::element<int64_t>(0, 1, r.kv_tokens / 2, r.kv_tokens);
    r.query_tokens = std::min(r.query_tokens, std::min<int64_t>(r.kv_tokens, 600));
  }
  const auto plan = plan_attention(requests, shape, cores);
  RC_ASSERT(validate(requests, shape, cores, {}, {}, plan) == "");
  RC_ASSERT(plan.loads == plan_attention(requests, shape, cores).loads);
  const auto split = split_contiguous(requests, shape, cores);
  int64_t sum = 0;
  int64_t published = 0;
  for (const int64_t load : split.loads) sum += load;
  for (const int64_t load : plan.loads) published += load;
  RC_ASSERT(published >= sum);  // finer cuts never make blocks cheaper
}

TEST(AttentionPlan, WrongInputIsNamed) {
  const std::vector<AttentionRequest> one = {{1, 100}};
  const std::vector<AttentionRequest> more_queries = {{2, 1}};
  const AttentionShape shape;
  EXPECT_THROW(plan_attention(more_queries, shape, 1), Error);
  EXPECT_THROW(plan_attention(one, shape, 0), Error);
  EXPECT_THROW(plan_attention(one, {0, 1, 16, 512}, 1), Error);
  EXPECT_THROW(plan_attention(one, shape, 1, {-1, 10, 10, 5}), Error);
  EXPECT_THROW(plan_attention(one, shape, 1, {}, {.split_tokens = 100}), Error);
  EXPECT_THROW(split_contiguous(one, shape, 0), Error);
  EXPECT_EQ(plan_attention({}, shape, 3).cores.size(), 3u);
  EXPECT_TRUE(split_contiguous({}, shape, 3).loads.empty());
}

TEST(AttentionPlan, ValidateSeesFaults) {
  const std::vector<AttentionRequest> requests = {{1, 1024}, {1, 512}};
  const AttentionShape shape{.heads_per_kv = 1, .num_kv_heads = 1, .row_tile = 16, .kv_tile = 512};
  const auto fault = [&](std::vector<AttentionRun> a, std::vector<AttentionRun> b, int64_t la,
                         int64_t lb) {
    return validate(requests, shape, 2, {}, {}, {{std::move(a), std::move(b)}, {la, lb}, 0, 0, 0});
  };
  const AttentionRun whole{0, 0, 0, 0, 1024};
  const AttentionRun other{1, 0, 0, 0, 512};
  EXPECT_EQ(fault({whole}, {other}, 172, 86), "");
  EXPECT_NE(fault({whole}, {other}, 172, 85), "");
  EXPECT_NE(fault({whole}, {}, 172, 0), "");
  EXPECT_NE(fault({whole}, {other, other}, 172, 172), "");
  EXPECT_NE(fault({{0, 0, 0, 0, 100}, {0, 0, 0, 100, 1024}}, {other}, 172, 86), "");
  EXPECT_NE(fault({{0, 0, 0, 0, 512}}, {other}, 86, 86), "");
  EXPECT_NE(fault({{0, 1, 0, 0, 1024}}, {other}, 172, 86), "");
  EXPECT_NE(fault({{0, 0, 0, 0, 2048}}, {other}, 344, 86), "");
}

}  // namespace
}  // namespace keel::balance
