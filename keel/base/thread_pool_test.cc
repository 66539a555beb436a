#include "keel/base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "keel/base/error.h"

namespace keel {
namespace {

TEST(ThreadPool, VisitsEveryIndexOnce) {
  for (int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    for (int64_t n : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> hits(static_cast<size_t>(n));
      pool.parallel_for(n, [&](int64_t i, int thread) {
        ASSERT_LT(thread, threads);
        ++hits[static_cast<size_t>(i)];
      });
      for (auto& h : hits) EXPECT_EQ(h, 1);
    }
  }
}

// A region closes while workers that wake late are still on their way; none of them may take an
// index of the next one twice or lose one.
TEST(ThreadPool, ManyShortRegions) {
  for (int threads : {2, 3, 8}) {
    ThreadPool pool(threads);
    std::vector<std::atomic<int>> hits(64);
    for (int64_t round = 0; round < 20'000; ++round) {
      const int64_t n = 1 + round % 64;
      const auto hit = [&](int64_t i, int) { hits[static_cast<size_t>(i)].fetch_add(1); };
      if (round % 3 == 0) {
        pool.parallel_in_order(n, hit);
      } else {
        pool.parallel_for(n, hit);
      }
      for (int64_t i = 0; i < 64; ++i) {
        ASSERT_EQ(hits[static_cast<size_t>(i)].exchange(0), i < n ? 1 : 0) << round << " " << i;
      }
    }
  }
}

TEST(ThreadPool, InOrderTasksMayWaitForLowerOnes) {
  ThreadPool pool(3);
  for (int round = 0; round < 200; ++round) {
    std::atomic<int64_t> done{0};
    pool.parallel_in_order(50, [&](int64_t i, int) {
      while (done.load() != i) std::this_thread::yield();
      ++done;
    });
    EXPECT_EQ(done, 50);
  }
}

TEST(ThreadPool, RethrowsAndStaysUsable) {
  ThreadPool pool(2);
  EXPECT_THROW(pool.parallel_for(100, [](int64_t i, int) { KEEL_REQUIRE(i != 50, "boom"); }),
               Error);
  std::atomic<int64_t> sum{0};
  pool.parallel_for(10, [&](int64_t i, int) { sum += i; });
  EXPECT_EQ(sum, 45);
}

TEST(ThreadPool, NestedRegionsRunOnTheCaller) {
  ThreadPool pool(2);
  std::atomic<int> count{0};
  pool.parallel_for(4, [&](int64_t, int) { pool.parallel_for(3, [&](int64_t, int) { ++count; }); });
  EXPECT_EQ(count, 12);
}

}  // namespace
}  // namespace keel
