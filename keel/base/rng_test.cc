#include "keel/base/rng.h"

#include <gtest/gtest.h>

namespace keel {
namespace {

// Known answers from the Random123 distribution (philox4x32-10).
TEST(Rng, PhiloxKnownAnswers) {
  const auto zero = philox(0, 0, 0);
  EXPECT_EQ(zero, (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const auto ones = philox(~0ull, ~0ull, ~0ull);
  EXPECT_EQ(ones, (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Rng, UniformIsOpenAndCentred) {
  double sum = 0;
  for (uint64_t i = 0; i < 100000; ++i) {
    const double u = uniform(7, i);
    ASSERT_GT(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.005);
}

TEST(Rng, UniformIntCoversRange) {
  int hits[5] = {};
  for (uint64_t i = 0; i < 5000; ++i) ++hits[uniform_int(5, 1, i)];
  for (int h : hits) EXPECT_NEAR(h, 1000, 150);
}

}  // namespace
}  // namespace keel
