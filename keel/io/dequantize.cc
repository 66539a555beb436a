#include "keel/io/dequantize.h"

#include <array>
#include <cstring>

#include "keel/base/error.h"
#include "keel/io/half.h"

namespace keel {
namespace {

constexpr std::array<GgmlTypeInfo, 11> kTypes = {{
    {GgmlType::kF32, "F32", 1, 4},
    {GgmlType::kF16, "F16", 1, 2},
    {GgmlType::kBF16, "BF16", 1, 2},
    {GgmlType::kQ4_0, "Q4_0", 32, 18},
    {GgmlType::kQ4_1, "Q4_1", 32, 20},
    {GgmlType::kQ5_0, "Q5_0", 32, 22},
    {GgmlType::kQ5_1, "Q5_1", 32, 24},
    {GgmlType::kQ8_0, "Q8_0", 32, 34},
    {GgmlType::kQ4_K, "Q4_K", 256, 144},
    {GgmlType::kQ5_K, "Q5_K", 256, 176},
    {GgmlType::kQ6_K, "Q6_K", 256, 210},
}};

// Names by number, for messages about what is not read.
constexpr std::array<std::string_view, 31> kNames = {
    "F32",     "F16",    "Q4_0",    "Q4_1",  "Q4_2",   "Q4_3",  "Q5_0",  "Q5_1",
    "Q8_0",    "Q8_1",   "Q2_K",    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K",  "Q8_K",
    "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS",
    "I8",      "I16",    "I32",     "I64",   "F64",    "IQ1_M", "BF16"};

float load_f16(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return f16_to_f32(h);
}

uint32_t load_u32(const uint8_t* p) {
  uint32_t u;
  std::memcpy(&u, p, 4);
  return u;
}

// 32 values: low nibbles first, then high nibbles. `high` has bit 4 of value i in bit i.
void unpack32(const uint8_t* q, uint32_t high, int* out) {
  for (int i = 0; i < 16; ++i) {
    out[i] = (q[i] & 15) | static_cast<int>(high >> i & 1) << 4;
    out[i + 16] = q[i] >> 4 | static_cast<int>(high >> (i + 16) & 1) << 4;
  }
}

void block_q4_0(const uint8_t* p, float* out) {
  int q[32];
  unpack32(p + 2, 0, q);
  const float d = load_f16(p);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(q[i] - 8) * d;
}

void block_q4_1(const uint8_t* p, float* out) {
  int q[32];
  unpack32(p + 4, 0, q);
  const float d = load_f16(p), m = load_f16(p + 2);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(q[i]) * d + m;
}

void block_q5_0(const uint8_t* p, float* out) {
  int q[32];
  unpack32(p + 6, load_u32(p + 2), q);
  const float d = load_f16(p);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(q[i] - 16) * d;
}

void block_q5_1(const uint8_t* p, float* out) {
  int q[32];
  unpack32(p + 8, load_u32(p + 4), q);
  const float d = load_f16(p), m = load_f16(p + 2);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(q[i]) * d + m;
}

void block_q8_0(const uint8_t* p, float* out) {
  const float d = load_f16(p);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(static_cast<int8_t>(p[2 + i])) * d;
}

// Sub-block j of 8 has a 6-bit scale and a 6-bit minimum, packed into 12 bytes.
void scale_and_min(const uint8_t* s, int j, int* scale, int* minimum) {
  if (j < 4) {
    *scale = s[j] & 63;
    *minimum = s[j + 4] & 63;
  } else {
    *scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
    *minimum = s[j + 4] >> 4 | (s[j] >> 6) << 4;
  }
}

// Q4_K and Q5_K. high: fifth bits (nullptr: none); sub-block j uses bit j of byte i.
void block_k45(const uint8_t* p, const uint8_t* high, const uint8_t* q, float* out) {
  const float d = load_f16(p), dmin = load_f16(p + 2);
  for (int j = 0; j < 8; ++j) {
    int scale, minimum;
    scale_and_min(p + 4, j, &scale, &minimum);
    const float s = d * static_cast<float>(scale), m = dmin * static_cast<float>(minimum);
    const uint8_t* row = q + 32 * (j / 2);
    for (int i = 0; i < 32; ++i) {
      int v = j % 2 == 0 ? row[i] & 15 : row[i] >> 4;
      if (high != nullptr) v |= (high[i] >> j & 1) << 4;
      out[32 * j + i] = s * static_cast<float>(v) - m;
    }
  }
}

void block_q4_k(const uint8_t* p, float* out) { block_k45(p, nullptr, p + 16, out); }
void block_q5_k(const uint8_t* p, float* out) { block_k45(p, p + 16, p + 48, out); }

// 128 bytes of low nibbles, 64 bytes of 2 high bits, 16 signed scales, one f16 scale.
void block_q6_k(const uint8_t* p, float* out) {
  const float d = load_f16(p + 208);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* low = p + 64 * half;
    const uint8_t* high = p + 128 + 32 * half;
    const uint8_t* scales = p + 192 + 8 * half;
    for (int quarter = 0; quarter < 4; ++quarter) {
      for (int i = 0; i < 32; ++i) {
        const int byte = low[i + 32 * (quarter % 2)];
        const int nibble = quarter < 2 ? byte & 15 : byte >> 4;
        const int v = (nibble | (high[i] >> (2 * quarter) & 3) << 4) - 32;
        const auto scale = static_cast<float>(static_cast<int8_t>(scales[2 * quarter + i / 16]));
        out[128 * half + 32 * quarter + i] = d * scale * static_cast<float>(v);
      }
    }
  }
}

using BlockFn = void (*)(const uint8_t*, float*);

BlockFn block_fn(GgmlType type) {
  switch (type) {
    case GgmlType::kQ4_0:
      return block_q4_0;
    case GgmlType::kQ4_1:
      return block_q4_1;
    case GgmlType::kQ5_0:
      return block_q5_0;
    case GgmlType::kQ5_1:
      return block_q5_1;
    case GgmlType::kQ8_0:
      return block_q8_0;
    case GgmlType::kQ4_K:
      return block_q4_k;
    case GgmlType::kQ5_K:
      return block_q5_k;
    case GgmlType::kQ6_K:
      return block_q6_k;
    default:
      return nullptr;
  }
}

}  // namespace

std::optional<GgmlTypeInfo> ggml_type_info(uint32_t type) {
  for (const auto& t : kTypes) {
    if (static_cast<uint32_t>(t.type) == type) return t;
  }
  return std::nullopt;
}

std::string_view ggml_type_name(uint32_t type) {
  return type < kNames.size() ? kNames[type] : "an unknown type";
}

void dequantize(GgmlType type, std::span<const std::byte> bytes, std::span<float> out) {
  if (type == GgmlType::kF32) return to_f32(DType::kF32, bytes, out);
  if (type == GgmlType::kF16) return to_f32(DType::kF16, bytes, out);
  if (type == GgmlType::kBF16) return to_f32(DType::kBF16, bytes, out);
  const auto info = ggml_type_info(static_cast<uint32_t>(type));
  KEEL_CHECK(info.has_value(), "type {}", static_cast<uint32_t>(type));
  const auto elements = static_cast<size_t>(info->block_elements);
  const auto size = static_cast<size_t>(info->block_bytes);
  const size_t blocks = out.size() / elements;
  KEEL_CHECK(blocks * elements == out.size() && blocks * size == bytes.size(),
             "{} bytes of {} for {} values", bytes.size(), info->name, out.size());
  const BlockFn fn = block_fn(type);
  const auto* p = reinterpret_cast<const uint8_t*>(bytes.data());
  for (size_t b = 0; b < blocks; ++b) fn(p + b * size, out.data() + b * elements);
}

}  // namespace keel
