#include "keel/base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
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
