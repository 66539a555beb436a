#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>

#include "keel/base/thread_pool.h"
#include "keel/ops/attention/attention_plan.h"
#include "keel/ops/attention/attention_ref.h"
#include "keel/ops/attention/attention_test_util.h"

namespace keel::ops {
namespace {

using test::Gradients;
using test::make_problem;
using test::Problem;
using test::Result;
using test::same_bits;
using test::Want;

std::vector<double> widen(const std::vector<float>& x) { return {x.begin(), x.end()}; }

// Prompts with answers that share them, a boundary inside a split, chunks, single rows.
std::vector<Want> training_batch() {
  return {{100, 0, -1}, {40, 96, 0}, {25, 96, 0},  {70, 80, 0}, {1, 0, -1},   {63, 0, -1},
          {64, 0, -1},  {65, 0, -1}, {200, 0, -1}, {33, 96, 8}, {16, 128, 8}, {17, 3, -1}};
}

struct Reference {
  std::vector<double> dq, dk, dv;
};

Reference reference(Problem& p, const std::vector<float>& dout) {
  Reference g = {std::vector<double>(p.q.size()), std::vector<double>(p.k_pool.size()),
                 std::vector<double>(p.v_pool.size())};
  attention_backward_ref(p.shape, widen(p.q).data(), widen(p.k_pool).data(), widen(p.v_pool).data(),
                         p.sequences, widen(dout).data(), g.dq.data(), g.dk.data(), g.dv.data());
  return g;
}

// ||a - b|| / ||b|| over values that were written.
double relative_error(const std::vector<float>& a, const std::vector<double>& b) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == test::kSentinel) continue;
    error += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(error / norm);
}

void expect_near(const Gradients& g, const Reference& r, int head_dim) {
  // Scores, dP and delta carry about sqrt(d) roundings of values of size sqrt(d) * scale ~ 1, and
  // sums over keys and rows another sqrt(200); 2^-24 each.
  const double tol = (4 * std::sqrt(static_cast<double>(head_dim)) + 15) / (1 << 24);
  EXPECT_LT(relative_error(g.dq, r.dq), tol);
  EXPECT_LT(relative_error(g.dk, r.dk), tol);
  EXPECT_LT(relative_error(g.dv, r.dv), tol);
}

TEST(AttentionBackward, MatchesReference) {
  for (const int head_dim : {8, 24, 64, 80, 128}) {
    for (const auto& [heads, kv_heads] : {std::pair{1, 1}, {4, 2}, {3, 1}, {8, 1}}) {
      SCOPED_TRACE(testing::Message() << head_dim << " " << heads << "/" << kv_heads);
      Problem clean = make_problem(heads, kv_heads, head_dim, training_batch());
      Problem p = clean;
      test::poison_unused(p);
      const auto dout = test::random_floats(p.q.size(), 9);
      const Result r = test::forward(p, p.sequences, p.pool());
      expect_near(test::backward(p, p.sequences, r, dout), reference(clean, dout), head_dim);
    }
  }
}

TEST(AttentionBackward, EveryTargetMatchesReference) {
  for (int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
    hwy::SetSupportedTargetsForTest(left & -left);
    SCOPED_TRACE(hwy::TargetName(left & -left));
    Problem p = make_problem(4, 2, 24, {{100, 0, -1}, {40, 96, 0}});
    const auto dout = test::random_floats(p.q.size(), 9);
    const Result r = test::forward(p, p.sequences, p.pool());
    expect_near(test::backward(p, p.sequences, r, dout), reference(p, dout), 24);
  }
  hwy::SetSupportedTargetsForTest(0);
}

// The reference itself against central differences of its forward.
TEST(AttentionBackward, ReferenceMatchesFiniteDifferences) {
  Problem p = make_problem(2, 1, 8, {{20, 0, -1}, {5, 16, 0}});
  const auto dout = test::random_floats(p.q.size(), 9);
  const Reference g = reference(p, dout);
  std::vector<double> q = widen(p.q), k = widen(p.k_pool), v = widen(p.v_pool);
  std::vector<double> out(q.size()), lse(p.rows * p.shape.num_heads);
  const auto loss = [&] {
    attention_forward_ref(p.shape, q.data(), k.data(), v.data(), p.sequences, out.data(),
                          lse.data());
    double sum = 0;
    for (size_t i = 0; i < out.size(); ++i) sum += out[i] * dout[i];
    return sum;
  };
  const auto slope = [&](double& x) {
    const double h = 1e-5, old = x;
    x = old + h;
    const double up = loss();
    x = old - h;
    const double down = loss();
    x = old;
    return (up - down) / (2 * h);
  };
  for (size_t i = 0; i < q.size(); i += 3) ASSERT_NEAR(slope(q[i]), g.dq[i], 1e-8) << i;
  const int d = p.shape.head_dim;
  for (size_t i = 0; i < k.size(); i += 5) {
    ASSERT_NEAR(slope(v[i]), g.dv[i], 1e-8) << i;
    // k is [head_dim][16] in a block, its gradient [16][head_dim].
    const size_t block = i / (16 * d) * 16 * d, slot = i % 16, dim = i % (16 * d) / 16;
    ASSERT_NEAR(slope(k[i]), g.dk[block + slot * d + dim], 1e-8) << i;
  }
}

TEST(AttentionBackward, BitsDoNotDependOnThreads) {
  for (const auto& [heads, kv_heads, head_dim] :
       {std::tuple{4, 2, 64}, {9, 3, 64}, {2, 1, 128}, {8, 1, 40}}) {
    Problem p = make_problem(heads, kv_heads, head_dim, training_batch());
    const auto dout = test::random_floats(p.q.size(), 9);
    const Result r = test::forward(p, p.sequences, p.pool());
    set_num_threads(1);
    const Gradients one = test::backward(p, p.sequences, r, dout);
    for (const int threads : {2, 3, 2, 4}) {
      set_num_threads(threads);
      const Gradients many = test::backward(p, p.sequences, r, dout);
      ASSERT_TRUE(same_bits(one.dq, many.dq)) << threads;
      ASSERT_TRUE(same_bits(one.dk, many.dk)) << threads;
      ASSERT_TRUE(same_bits(one.dv, many.dv)) << threads;
    }
  }
  set_num_threads(2);
}

// dq of a row does not change when its sequence is cut or runs alone.
TEST(AttentionBackward, QueryGradientIsBatchInvariant) {
  Problem p = make_problem(4, 2, 64, training_batch());
  const auto dout = test::random_floats(p.q.size(), 9);
  const Result r = test::forward(p, p.sequences, p.pool());
  const Gradients whole = test::backward(p, p.sequences, r, dout);
  for (const int chunk : {1, 13, 64}) {
    std::vector<AttentionSequence> parts;
    for (const auto& s : p.sequences)
      for (int i = 0; i < s.num_rows; i += chunk)
        parts.push_back(
            {s.row + i, std::min(chunk, s.num_rows - i), s.first_position + i, s.blocks});
    const Gradients g = test::backward(p, parts, r, dout);
    ASSERT_TRUE(same_bits(whole.dq, g.dq)) << chunk;
    EXPECT_LT(relative_error(g.dk, {whole.dk.begin(), whole.dk.end()}), 1e-6);
  }
}

TEST(AttentionBackward, WritesOnlyListedBlocksAndItsRows) {
  Problem p = make_problem(2, 1, 24, {{5, 0, -1}, {40, 20, -1}, {3, 0, -1}});
  const auto dout = test::random_floats(p.q.size(), 9);
  const Result r = test::forward(p, p.sequences, p.pool());
  const Gradients g = test::backward(p, {p.sequences[1]}, r, dout);
  for (int64_t i = 0; i < static_cast<int64_t>(g.dq.size()); ++i)
    ASSERT_EQ(g.dq[i] == test::kSentinel, i < 5 * p.q_width() || i >= 45 * p.q_width());
  for (int b = 0; b < p.num_blocks; ++b) {
    const bool listed = std::count(p.blocks[1].begin(), p.blocks[1].end(), b) > 0;
    for (int64_t i = b * p.block_values(); i < (b + 1) * p.block_values(); ++i) {
      ASSERT_EQ(g.dk[i] != test::kSentinel, listed);
      ASSERT_EQ(g.dv[i] != test::kSentinel, listed);
    }
  }
}

TEST(AttentionBackward, PlanGroupsSharedSplits) {
  // Prompt of 100 and three answers from position 96: split 0 is common to all; in split 1 they
  // share blocks 64..95 only.
  Problem p = make_problem(2, 1, 8, {{100, 0, -1}, {10, 96, 0}, {50, 96, 0}, {10, 96, 0}});
  const BackwardPlan plan = plan_backward(p.shape, p.sequences);
  ASSERT_EQ(plan.groups.size(), 6u);  // 1 + 4 + split 2 of the second answer
  EXPECT_EQ(plan.groups[0].member_end - plan.groups[0].member_begin, 4);
  for (int i = 1; i <= 4; ++i) {
    EXPECT_EQ(plan.groups[i].split, 1);
    EXPECT_EQ(plan.groups[i].turn[0], i - 1);
    EXPECT_EQ(plan.groups[i].turn[2], 0);
  }
  EXPECT_EQ(plan.groups[5].split, 2);
}

}  // namespace
}  // namespace keel::ops
