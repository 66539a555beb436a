#include "keel/io/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "keel/base/cpu.h"
#include "keel/base/rng.h"

namespace keel {
namespace {

// Nearest value of a 16-bit format by search over all of its codes, ties to the even code.
template <class Decode>
uint16_t nearest(double value, Decode decode, uint16_t infinity) {
  uint16_t best = 0;
  double best_distance = std::numeric_limits<double>::infinity();
  for (uint32_t code = 0; code < infinity; ++code) {
    const double d = std::abs(static_cast<double>(decode(static_cast<uint16_t>(code))) - value);
    if (d < best_distance || (d == best_distance && code % 2 == 0)) {
      best = static_cast<uint16_t>(code);
      best_distance = d;
    }
  }
  return best;
}

TEST(Half, EveryCodeSurvives) {
  for (uint32_t code = 0; code < 65536; ++code) {
    const auto c = static_cast<uint16_t>(code);
    const float h = f16_to_f32(c), b = bf16_to_f32(c);
    if (std::isnan(h)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(h))));
    } else {
      EXPECT_EQ(f32_to_f16(h), c);
    }
    if (std::isnan(b)) {
      EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(b))));
    } else {
      EXPECT_EQ(f32_to_bf16(b), c);
    }
  }
}

TEST(Half, KnownF16) {
  EXPECT_EQ(f16_to_f32(0x3C00), 1.0f);
  EXPECT_EQ(f16_to_f32(0xC000), -2.0f);
  EXPECT_EQ(f16_to_f32(0x0001), 0x1p-24f);
  EXPECT_EQ(f16_to_f32(0x03FF), 1023 * 0x1p-24f);
  EXPECT_EQ(f16_to_f32(0x7BFF), 65504.0f);
  EXPECT_EQ(f32_to_f16(65519.99f), 0x7BFF);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7C00);
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0x0000);         // tie to even
  EXPECT_EQ(f32_to_f16(3 * 0x1p-25f), 0x0002);     // tie to even
  EXPECT_EQ(f32_to_f16(1.0f + 0x1p-11f), 0x3C00);  // tie to even
  EXPECT_EQ(f32_to_f16(1.0f + 3 * 0x1p-11f), 0x3C02);
  EXPECT_EQ(f32_to_f16(-1e10f), 0xFC00);
}

TEST(Half, RoundsToNearest) {
  for (uint64_t i = 0; i < 60; ++i) {
    const double exponent = -26 + 41 * uniform(7, i);
    const auto f = static_cast<float>(std::exp2(exponent));
    EXPECT_EQ(f32_to_f16(f), nearest(f, f16_to_f32, 0x7C00)) << f;
    EXPECT_EQ(f32_to_bf16(f), nearest(f, bf16_to_f32, 0x7F80)) << f;
  }
}

TEST(Half, SameUnderFlushToZero) {
  std::vector<uint16_t> codes(2048);
  std::vector<float> plain(2048), flushed(2048);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint16_t>(i);
  const auto bytes = std::as_bytes(std::span(codes));
  to_f32(DType::kF16, bytes, plain);
  set_flush_denormals();
  to_f32(DType::kF16, bytes, flushed);
  std::vector<uint16_t> back(2048);
  from_f32(DType::kF16, flushed, std::as_writable_bytes(std::span(back)));
  EXPECT_EQ(plain, flushed);
  EXPECT_EQ(codes, back);
}

TEST(Half, ArraysOfAllFloatingTypes) {
  const std::vector<float> values = {0.0f, -1.5f, 3.25f, 1000.0f};
  for (const DType d : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    // One byte off: readers get unaligned data from files.
    std::vector<std::byte> bytes(values.size() * static_cast<size_t>(dtype_bytes(d)) + 1);
    std::vector<float> back(values.size());
    from_f32(d, values, std::span(bytes).subspan(1));
    to_f32(d, std::span(bytes).subspan(1), back);
    EXPECT_EQ(back, values) << dtype_name(d);
  }
}

}  // namespace
}  // namespace keel
