#include "keel/rollout/kv_size.h"

#include <gtest/gtest.h>

#include "keel/base/error.h"

namespace keel::rollout {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

TEST(KvSize, TakesWhatIsWantedWithinBoundAndMemory) {
  EXPECT_EQ(choose_kv_blocks({.kv_blocks = 77}, 1 << 20, 1 << 20, kGiB), 77);
  EXPECT_EQ(choose_kv_blocks({}, 161, 1 << 10, kGiB), 11 + 1);
  EXPECT_EQ(choose_kv_blocks({.kv_memory_mib = 10}, 1 << 20, 1 << 20, kGiB), 10);
  EXPECT_EQ(choose_kv_blocks({}, 1 << 20, 1 << 20, kGiB), 256);
}

TEST(KvSize, WrongFieldsAndNoRoomAreNamed) {
  EXPECT_THROW(choose_kv_blocks({.kv_blocks = 1}, 10, 10, kGiB), Error);
  EXPECT_THROW(choose_kv_blocks({.kv_blocks = -3}, 10, 10, kGiB), Error);
  EXPECT_THROW(choose_kv_blocks({.kv_memory_mib = 0}, 10, 10, kGiB), Error);
  try {
    choose_kv_blocks({}, 10, kGiB, kGiB);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kResource);
  }
}

TEST(KvSize, ReadsTheMachine) { EXPECT_GT(available_memory_bytes(), 1 << 20); }

}  // namespace
}  // namespace keel::rollout
