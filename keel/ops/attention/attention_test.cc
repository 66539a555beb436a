#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <bit>
#include <cstring>

#include "keel/base/thread_pool.h"
#include "keel/ops/attention/attention_plan.h"
#include "keel/ops/attention/attention_ref.h"
#include "keel/ops/attention/attention_test_util.h"

namespace keel::ops {
namespace {

using test::make_problem;
using test::Problem;
using test::Result;
using test::Want;

std::vector<double> widen(const std::vector<float>& x) { return {x.begin(), x.end()}; }

// Relative error of one rounding.
constexpr double kEps = 1.0 / (1 << 24);

// Largest |error| allowed for outputs: a score of d products of values below 1.7 is off by
// d * eps * d * 1.7^2 * scale at worst (random walk: sqrt), which moves p relatively by as much;
// the weighted mean of values adds (keys of a split + merges) roundings. Values are below 1.7.
double tolerance(const AttentionShape& shape, int max_keys) {
  const double d = shape.head_dim;
  const double score = std::sqrt(d) * kEps * d * 1.7 * 1.7 * shape.scale;
  double tol = 1.7 * 2 * (score + kEps * (16 + std::sqrt(64.0 + max_keys / 64.0)));
  // A score on the edge may round P to the other neighbour (2^-8 of one weight); the output rounds.
  if (shape.round_bf16) tol += 1.7 * (1.0 / 256 + 1.0 / 512);
  return tol;
}

void expect_near_reference(Problem& p, const Result& r) {
  const int64_t n = p.rows * p.q_width();
  std::vector<double> out(n), lse(p.rows * p.shape.num_heads);
  attention_forward_ref(p.shape, widen(p.q).data(), widen(p.k_pool).data(), widen(p.v_pool).data(),
                        p.sequences, out.data(), lse.data());
  int max_keys = 0;
  for (const auto& s : p.sequences) max_keys = std::max(max_keys, s.first_position + s.num_rows);
  const double tol = tolerance(p.shape, max_keys);
  for (int64_t i = 0; i < n; ++i) ASSERT_NEAR(r.out[i], out[i], tol) << "value " << i;
  for (size_t i = 0; i < lse.size(); ++i) ASSERT_NEAR(r.lse[i], lse[i], tol) << "lse " << i;
}

std::vector<Want> mixed_lengths() {
  return {{1, 0, -1},  {15, 0, -1}, {16, 0, -1},  {17, 0, -1},  {63, 0, -1},
          {64, 0, -1}, {65, 0, -1}, {200, 0, -1}, {1, 199, -1}, {1, 64, -1},
          {1, 63, -1}, {7, 61, -1}, {33, 95, 7},  {70, 130, 7}, {3, 16, 7}};
}

TEST(Attention, MatchesReference) {
  for (const int head_dim : {8, 16, 24, 64, 80, 128}) {
    for (const auto& [heads, kv_heads] : {std::pair{1, 1}, {4, 2}, {3, 1}, {5, 1}, {8, 1}}) {
      SCOPED_TRACE(testing::Message() << head_dim << " " << heads << "/" << kv_heads);
      Problem p = make_problem(heads, kv_heads, head_dim, mixed_lengths());
      test::poison_unused(p);
      Problem clean = make_problem(heads, kv_heads, head_dim, mixed_lengths());
      const Result r = test::forward(p, p.sequences, p.pool());
      expect_near_reference(clean, r);
    }
  }
}

TEST(Attention, MatchesReferenceInBf16) {
  for (const int head_dim : {16, 64, 128}) {
    Problem p = make_problem(6, 2, head_dim, mixed_lengths(), true);
    const Result r = test::forward(p, p.sequences, p.pool());
    expect_near_reference(p, r);
    for (float x : r.out) ASSERT_EQ(std::bit_cast<uint32_t>(x) & 0xffffu, 0u);
    EXPECT_EQ(r, test::forward(p, p.sequences, p.half_pool())) << "pool type changes bits";
  }
}

// All targets that this machine runs, not only the best one.
TEST(Attention, EveryTargetMatchesReference) {
  const int64_t all = hwy::SupportedTargets();
  for (int64_t left = all; left != 0; left &= left - 1) {
    hwy::SetSupportedTargetsForTest(left & -left);
    SCOPED_TRACE(hwy::TargetName(left & -left));
    Problem p = make_problem(4, 2, 24, {{70, 0, -1}, {1, 130, -1}, {9, 60, -1}});
    expect_near_reference(p, test::forward(p, p.sequences, p.pool()));
  }
  hwy::SetSupportedTargetsForTest(0);
}

// Cuts every sequence into chunks of `chunk` rows, last sequence first.
std::vector<AttentionSequence> cut(const Problem& p, int chunk) {
  std::vector<AttentionSequence> parts;
  for (auto s = p.sequences.rbegin(); s != p.sequences.rend(); ++s)
    for (int r = 0; r < s->num_rows; r += chunk)
      parts.push_back(
          {s->row + r, std::min(chunk, s->num_rows - r), s->first_position + r, s->blocks});
  return parts;
}

TEST(Attention, BitsDependOnlyOnTheRow) {
  for (const bool bf16 : {false, true}) {
    for (const auto& [heads, kv_heads, head_dim] :
         {std::tuple{4, 2, 64}, {3, 3, 8}, {8, 1, 80}, {9, 3, 64}, {2, 1, 128}}) {
      SCOPED_TRACE(testing::Message() << head_dim << " " << heads << "/" << kv_heads);
      auto wants = mixed_lengths();
      wants.push_back({600, 0, -1});
      Problem p = make_problem(heads, kv_heads, head_dim, wants, bf16);
      set_num_threads(1);
      const Result whole = test::forward(p, p.sequences, p.pool());
      for (const int threads : {1, 2, 3}) {
        set_num_threads(threads);
        for (const int chunk : {1, 3, 16, 37, 1000})
          ASSERT_EQ(whole, test::forward(p, cut(p, chunk), p.pool())) << threads << " " << chunk;
        // One row alone is cut over the keys when there are several threads.
        Result alone = whole;
        const AttentionSequence last = cut(p, 1)[0];
        const int64_t at = last.row * p.q_width();
        std::fill_n(alone.out.begin() + at, p.q_width(), 0.0f);
        attention_forward(p.shape, p.q.data(), p.q_width(), p.pool(), {&last, 1}, alone.out.data(),
                          p.q_width(), nullptr);
        ASSERT_EQ(whole, alone);
      }
    }
  }
  set_num_threads(2);
}

TEST(Attention, BitsDoNotDependOnBlockIds) {
  const std::vector<Want> wants = {{100, 0, -1}, {30, 70, -1}};
  Problem p = make_problem(4, 2, 64, wants);
  const Result before = test::forward(p, p.sequences, p.pool());
  // Move every used block b to num_blocks + b.
  const int64_t n = p.num_blocks * p.block_values();
  p.k_pool.resize(2 * n);
  p.v_pool.resize(2 * n);
  std::copy_n(p.k_pool.begin(), n, p.k_pool.begin() + n);
  std::copy_n(p.v_pool.begin(), n, p.v_pool.begin() + n);
  std::fill_n(p.k_pool.begin(), n, 5.0f);
  std::fill_n(p.v_pool.begin(), n, 5.0f);
  for (auto& list : p.blocks)
    for (int32_t& b : list) b += p.num_blocks;
  EXPECT_EQ(before, test::forward(p, p.sequences, p.pool()));
}

TEST(Attention, SharedPrefixEqualsOwnCopy) {
  const std::vector<Want> shared = {{100, 0, -1}, {40, 96, 0}, {25, 96, 0}};
  Problem p = make_problem(4, 2, 64, shared);
  const Result a = test::forward(p, p.sequences, p.pool());
  // A copy of the prefix blocks in new blocks.
  const int first = p.num_blocks;
  std::vector<int32_t> own = p.blocks[1];
  p.k_pool.resize((p.num_blocks + 6) * p.block_values());
  p.v_pool.resize((p.num_blocks + 6) * p.block_values());
  for (int j = 0; j < 6; ++j) {
    kv_copy_block(p.shape, p.pool(), own[j], first + j);
    own[j] = first + j;
  }
  auto sequences = p.sequences;
  sequences[1].blocks = own.data();
  EXPECT_EQ(a, test::forward(p, sequences, p.pool()));
}

// What is not finite must show, so that the step can be skipped.
TEST(Attention, NanReachesItsRowsOnly) {
  for (const int victim : {0, 1, 2}) {
    Problem p = make_problem(4, 2, 24, {{70, 0, -1}, {70, 0, -1}});
    const Result clean = test::forward(p, p.sequences, p.pool());
    const float nan = std::numeric_limits<float>::quiet_NaN();
    // Position 64 of the second sequence, kv head 0, dimension 5.
    const int64_t block = p.blocks[1][4] * p.block_values();
    if (victim == 0) p.q[(70 + 64) * p.q_width() + 5] = nan;
    if (victim == 1) p.k_pool[block + 5 * kKvBlock] = nan;
    if (victim == 2) p.v_pool[block + 5] = nan;
    const Result r = test::forward(p, p.sequences, p.pool());
    EXPECT_TRUE(std::isnan(r.out[(70 + 64) * p.q_width() + 5])) << victim;
    for (int64_t i = 0; i < 70 * p.q_width(); ++i) ASSERT_EQ(clean.out[i], r.out[i]);
  }
}

TEST(Attention, WritesOnlyItsRows) {
  Problem p = make_problem(2, 1, 24, {{5, 0, -1}, {3, 20, -1}});
  const int64_t ld = p.q_width() + 7;
  std::vector<float> out(10 * ld, -77.0f);
  std::vector<AttentionSequence> one = {p.sequences[1]};
  attention_forward(p.shape, p.q.data(), p.q_width(), p.pool(), one, out.data(), ld, nullptr);
  for (int64_t r = 0; r < 10; ++r)
    for (int64_t i = 0; i < ld; ++i)
      ASSERT_EQ(out[r * ld + i] == -77.0f, r < 5 || r >= 8 || i >= p.q_width()) << r << " " << i;
}

TEST(Attention, PlanCoversEverySplitOnce) {
  for (const int threads : {1, 2, 16}) {
    for (const auto& wants : {mixed_lengths(),
                              {{1, 4000, -1}},
                              {{1, 4000, -1}, {1, 90, -1}},
                              {{2, 1000, -1}, {50, 3000, -1}},
                              {}}) {
      Problem p = make_problem(4, 2, 8, wants);
      const ForwardPlan plan = plan_forward(p.shape, p.sequences, threads);
      EXPECT_EQ(validate(p.shape, p.sequences, plan), "");
    }
  }
  Problem p = make_problem(4, 2, 8, {{1, 4000, -1}});
  ForwardPlan plan = plan_forward(p.shape, p.sequences, 4);
  EXPECT_GT(plan.units.size(), 2u) << "one long sequence is cut";
  plan.units.pop_back();
  EXPECT_NE(validate(p.shape, p.sequences, plan), "");
}

}  // namespace
}  // namespace keel::ops
