// float16 and bfloat16 <-> float32, rounding to nearest, ties to even. Exact under flush-to-zero
// and denormals-are-zero too (no float32 denormal takes part), NaN stays NaN, overflow gives
// infinity.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "keel/io/dtype.h"

namespace keel {

inline float bf16_to_f32(uint16_t b) {
  return std::bit_cast<float>(static_cast<uint32_t>(b) << 16);
}

inline uint16_t f32_to_bf16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  if ((u & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>(u >> 16 | 0x0040u);
  return static_cast<uint16_t>((u + 0x7FFFu + (u >> 16 & 1u)) >> 16);
}

inline float f16_to_f32(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = h >> 10 & 0x1Fu;
  const uint32_t mantissa = static_cast<uint32_t>(h & 0x3FFu) << 13;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | mantissa);
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | mantissa);
  // 2^-14 * (1 + m) - 2^-14: both are normal numbers.
  const float magnitude = std::bit_cast<float>(0x38800000u | mantissa) - 0x1p-14f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

inline uint16_t f32_to_f16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  const uint16_t sign = static_cast<uint16_t>(u >> 16 & 0x8000u);
  const uint32_t a = u & 0x7FFFFFFFu;
  if (a > 0x7F800000u) return sign | 0x7E00u;
  if (a >= 0x477FF000u) return sign | 0x7C00u;  // >= 65520 rounds to infinity
  if (a < 0x38800000u) {                        // denormal result: 0.5 has the right unit, 2^-24
    const float shifted = std::bit_cast<float>(a) + 0.5f;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(shifted) - 0x3F000000u);
  }
  return sign | static_cast<uint16_t>((a + 0xFFFu + (a >> 13 & 1u) - 0x38000000u) >> 13);
}

// Whole arrays. bytes: elements of a floating dtype, not necessarily aligned, out.size() of them.
void to_f32(DType dtype, std::span<const std::byte> bytes, std::span<float> out);
void from_f32(DType dtype, std::span<const float> in, std::span<std::byte> bytes);

}  // namespace keel
