#include "keel/sched/block_pool.h"

#include <gtest/gtest.h>

#include <random>

#include "keel/base/error.h"

namespace keel::sched {
namespace {

TEST(BlockPool, HandsOutEachBlockOnceAndNeverTheNullBlock) {
  BlockPool pool(5);
  std::vector<bool> seen(5);
  for (int i = 0; i < 4; ++i) {
    const int32_t b = pool.allocate();
    ASSERT_GT(b, kNullBlock);
    EXPECT_FALSE(seen[b]);
    seen[b] = true;
  }
  EXPECT_EQ(pool.allocate(), kNullBlock);
  EXPECT_EQ(pool.num_used(), 4);
  pool.release(3);
  EXPECT_EQ(pool.allocate(), 3);
}

TEST(BlockPool, MisuseIsOurBug) {
  BlockPool pool(3);
  EXPECT_THROW(pool.release(1), InternalError);
  EXPECT_THROW(pool.retain(kNullBlock), InternalError);
  const int32_t b = pool.allocate();
  pool.set_cached(b, true);
  EXPECT_THROW(pool.release(b), InternalError);
  EXPECT_THROW(BlockPool(1), Error);
}

TEST(BlockPool, RandomOperationsKeepExactAccounts) {
  constexpr int32_t kBlocks = 40;
  BlockPool pool(kBlocks);
  std::vector<int32_t> refs(kBlocks, 0);
  std::vector<bool> cached(kBlocks, false);
  std::mt19937 rng(1);
  for (int op = 0; op < 100000; ++op) {
    const auto b = static_cast<int32_t>(1 + rng() % (kBlocks - 1));
    switch (rng() % 5) {
      case 0:
        if (const int32_t got = pool.allocate(); got != kNullBlock) {
          ASSERT_EQ(refs[got], 0);
          refs[got] = 1;
        }
        break;
      case 1:
        if (refs[b] > 0) pool.retain(b), ++refs[b];
        break;
      case 2:
      case 3:
        if (refs[b] > 0 && !(cached[b] && refs[b] == 1)) pool.release(b), --refs[b];
        break;
      default:
        if (refs[b] > 0) pool.set_cached(b, cached[b] = !cached[b]);
    }
    int32_t free = 0;
    int32_t idle = 0;
    for (int32_t i = 1; i < kBlocks; ++i) {
      ASSERT_EQ(pool.ref_count(i), refs[i]);
      free += refs[i] == 0;
      idle += cached[i] && refs[i] == 1;
    }
    ASSERT_EQ(pool.num_free(), free);
    ASSERT_EQ(pool.num_idle(), idle);
    if (op % 64 == 0) {
      ASSERT_EQ(pool.validate(), "");
    }
  }
}

}  // namespace
}  // namespace keel::sched
