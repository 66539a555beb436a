// Weight formats of GGUF files. Layouts after the public ggml format description.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace keel {

enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

struct GgmlTypeInfo {
  GgmlType type;
  std::string_view name;
  int64_t block_elements;  // values that share scales
  int64_t block_bytes;
};

// nullopt for a type that Keel does not read.
std::optional<GgmlTypeInfo> ggml_type_info(uint32_t type);
// "Q4_K"; "an unknown type" above the numbers known here.
std::string_view ggml_type_name(uint32_t type);

// bytes: whole blocks of out.size() values.
void dequantize(GgmlType type, std::span<const std::byte> bytes, std::span<float> out);

}  // namespace keel
