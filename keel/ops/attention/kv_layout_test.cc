#include "keel/ops/attention/kv_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "keel/base/error.h"
#include "keel/ops/attention/attention_test_util.h"

namespace keel::ops {
namespace {

std::vector<int32_t> blocks_of(const KvLayout& layout, int i) {
  const AttentionSequence& s = layout.sequences[i];
  const int n = (s.first_position + s.num_rows + kKvBlock - 1) / kKvBlock;
  return {s.blocks, s.blocks + n};
}

TEST(KvLayout, SharesFullPrefixBlocksAndCopiesTheRest) {
  const PackedSequence batch[] = {{0, 40, -1, 0}, {40, 10, 0, 40}, {50, 30, 0, 40}, {80, 5, -1, 0}};
  const KvLayout layout = make_kv_layout(batch);
  EXPECT_EQ(blocks_of(layout, 0), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(blocks_of(layout, 1), (std::vector<int32_t>{1, 2, 4, 5}));
  EXPECT_EQ(blocks_of(layout, 2), (std::vector<int32_t>{1, 2, 6, 7, 8}));
  EXPECT_EQ(blocks_of(layout, 3), (std::vector<int32_t>{9}));
  EXPECT_EQ(layout.num_blocks, 10);
  EXPECT_EQ(layout.sequences[2].first_position, 40);
  EXPECT_EQ(layout.sequences[2].row, 50);
  // 85 own rows and 8 boundary rows copied for each of two answers.
  EXPECT_EQ(layout.slots.size(), 85u + 16u);
  EXPECT_EQ(std::count_if(layout.slots.begin(), layout.slots.end(),
                          [](const KvSlot& s) { return s.row == 39; }),
            3);
}

TEST(KvLayout, EveryPositionHoldsItsRow) {
  // A chain: answer on prompt, continuation on that answer, another on a part of it.
  const PackedSequence batch[] = {{0, 33, -1, 0}, {33, 20, 0, 33}, {53, 9, 1, 53},
                                  {62, 4, 1, 35}, {66, 7, 0, 16},  {73, 3, 0, 0}};
  const KvLayout layout = make_kv_layout(batch);
  std::vector<int64_t> held(layout.num_blocks * kKvBlock, -1);
  for (const KvSlot& s : layout.slots) {
    ASSERT_GT(s.block, 0) << "the null block";
    int64_t& at = held[s.block * kKvBlock + s.slot];
    ASSERT_EQ(at, -1) << "written twice";
    at = s.row;
  }
  const auto row_at = [&](int i, int p) {
    return held[blocks_of(layout, i)[p / kKvBlock] * kKvBlock + p % kKvBlock];
  };
  for (int p = 0; p < 53; ++p) {
    if (p < 33) {
      EXPECT_EQ(row_at(0, p), p);
    }
    EXPECT_EQ(row_at(1, p), p);
    EXPECT_EQ(row_at(2, p), p);
    if (p < 35) {
      EXPECT_EQ(row_at(3, p), p);
    }
    if (p < 16) {
      EXPECT_EQ(row_at(4, p), p);
    }
  }
  EXPECT_EQ(row_at(2, 53), 53);
  EXPECT_EQ(row_at(3, 35), 62);
  EXPECT_EQ(row_at(4, 16), 66);
  EXPECT_EQ(row_at(5, 0), 73);
}

TEST(KvLayout, RefusesPrefixesThatAreNotThere) {
  const PackedSequence too_long[] = {{0, 10, -1, 0}, {10, 5, 0, 11}};
  EXPECT_THROW(make_kv_layout(too_long), InternalError);
  const PackedSequence forward[] = {{0, 10, 1, 5}, {10, 5, -1, 0}};
  EXPECT_THROW(make_kv_layout(forward), InternalError);
}

// Separate sequences and a shared prefix: equal output bits, equal gradients.
TEST(KvLayout, SharedPrefixTrainsLikeSeparateSequences) {
  const AttentionShape shape = {4, 2, 16, 0.25f, false};
  const int prompt = 41, answer = 30, num_answers = 3, length = prompt + answer;
  const int64_t kv_width = 2 * 16, q_width = 4 * 16;
  // Packed apart: [prompt answer] three times. Packed shared: prompt, then the answers.
  std::vector<PackedSequence> apart, shared = {{0, prompt, -1, 0}};
  std::vector<int> row_apart;  // of each row of `shared`, first occurrence
  for (int p = 0; p < prompt; ++p) row_apart.push_back(p);
  for (int a = 0; a < num_answers; ++a) {
    apart.push_back({a * length, length, -1, 0});
    shared.push_back({prompt + a * answer, answer, 0, prompt});
    for (int i = 0; i < answer; ++i) row_apart.push_back(a * length + prompt + i);
  }
  struct Run {
    std::vector<float> out, dq, dk, dv;
  };
  const auto run = [&](const std::vector<PackedSequence>& batch, const std::vector<float>& q,
                       const std::vector<float>& k, const std::vector<float>& v,
                       const std::vector<float>& dout) {
    const KvLayout layout = make_kv_layout(batch);
    const int64_t rows = static_cast<int64_t>(q.size()) / q_width;
    const size_t pool = layout.num_blocks * kKvBlock * kv_width;
    std::vector<float> kp(pool), vp(pool), dkp(pool), dvp(pool), lse(rows * 4);
    Run r = {std::vector<float>(q.size()), std::vector<float>(q.size()),
             std::vector<float>(k.size()), std::vector<float>(k.size())};
    kv_scatter(shape, k.data(), v.data(), kv_width, layout.slots, {kp.data(), vp.data()});
    attention_forward(shape, q.data(), q_width, {kp.data(), vp.data()}, layout.sequences,
                      r.out.data(), q_width, lse.data());
    attention_backward(shape, q.data(), q_width, {kp.data(), vp.data()}, layout.sequences,
                       r.out.data(), q_width, lse.data(), dout.data(), q_width, r.dq.data(),
                       q_width, dkp.data(), dvp.data());
    kv_gather_grad(shape, dkp.data(), dvp.data(), layout.slots, r.dk.data(), r.dv.data(), kv_width);
    return r;
  };
  const int64_t rows = row_apart.size(), all_rows = num_answers * length;
  const auto q = test::random_floats(rows * q_width, 1),
             k = test::random_floats(rows * kv_width, 2);
  const auto v = test::random_floats(rows * kv_width, 3);
  auto dout = test::random_floats(rows * q_width, 4);
  // The prompt's rows of the shared batch stand for three rows; give gradient to answers only.
  std::fill_n(dout.begin(), prompt * q_width, 0.0f);
  const auto spread = [&](const std::vector<float>& x, int64_t width) {
    std::vector<float> y(all_rows * width);
    for (int a = 0; a < num_answers; ++a)
      for (int p = 0; p < length; ++p) {
        const int64_t from = p < prompt ? p : prompt + a * answer + p - prompt;
        std::copy_n(x.begin() + from * width, width, y.begin() + (a * length + p) * width);
      }
    return y;
  };
  const Run one = run(shared, q, k, v, dout);
  const Run many = run(apart, spread(q, q_width), spread(k, kv_width), spread(v, kv_width),
                       spread(dout, q_width));
  EXPECT_TRUE(test::same_bits(spread(one.out, q_width), many.out));
  EXPECT_TRUE(test::same_bits(spread(one.dq, q_width), many.dq));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < kv_width; ++i) {
      double dk = 0, dv = 0;
      for (int a = 0; a < (r < prompt ? num_answers : 1); ++a) {
        dk += many.dk[(row_apart[r] + a * length) * kv_width + i];
        dv += many.dv[(row_apart[r] + a * length) * kv_width + i];
      }
      ASSERT_NEAR(one.dk[r * kv_width + i], dk, 2e-6) << r;
      ASSERT_NEAR(one.dv[r * kv_width + i], dv, 2e-5) << r;
    }
  }
}

// Large enough to run in parallel; both pool types; rows are found where the layout says.
TEST(KvPool, ScatterPutsRowsIntoTheirSlots) {
  const AttentionShape shape = {2, 2, 40, 1.0f, true};
  const int64_t width = 80, ld = width + 3, rows = 400;
  const PackedSequence batch[] = {{0, 300, -1, 0}, {300, 100, 0, 37}};
  const KvLayout layout = make_kv_layout(batch);
  const auto k = test::random_floats(rows * ld, 1, true);
  const auto v = test::random_floats(rows * ld, 2, true);
  const size_t size = layout.num_blocks * kKvBlock * width;
  std::vector<float> kp(size, test::kSentinel), vp(size, test::kSentinel);
  std::vector<uint16_t> kh(size), vh(size);
  kv_scatter(shape, k.data(), v.data(), ld, layout.slots, {kp.data(), vp.data(), DType::kF32});
  kv_scatter(shape, k.data(), v.data(), ld, layout.slots, {kh.data(), vh.data(), DType::kBF16});
  for (const KvSlot& s : layout.slots) {
    for (int h = 0; h < 2; ++h) {
      for (int i = 0; i < 40; ++i) {
        const int64_t at = (s.block * 2 + h) * 40 * kKvBlock;
        const int64_t kat = at + i * kKvBlock + s.slot, vat = at + s.slot * 40 + i;
        ASSERT_EQ(kp[kat], k[s.row * ld + h * 40 + i]);
        ASSERT_EQ(vp[vat], v[s.row * ld + h * 40 + i]);
        ASSERT_EQ(kh[kat], std::bit_cast<uint32_t>(kp[kat]) >> 16);
        ASSERT_EQ(vh[vat], std::bit_cast<uint32_t>(vp[vat]) >> 16);
      }
    }
  }
  EXPECT_EQ(kp[0], test::kSentinel) << "the null block is not written";
}

}  // namespace
}  // namespace keel::ops
