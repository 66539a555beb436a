// Element types of stored tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace keel {

enum class DType : uint8_t { kF64, kF32, kF16, kBF16, kI64, kI32, kI16, kI8, kU8, kBool };

// Bytes of one element.
int dtype_bytes(DType dtype);

// "F32", "BF16", ...: the names that safetensors uses.
std::string_view dtype_name(DType dtype);
std::optional<DType> dtype_from_name(std::string_view name);

// "float32", "bfloat16", "float16", "float64" as in config.json, and the short "f32", "bf16",
// "f16". nullopt for anything else.
std::optional<DType> dtype_from_torch_name(std::string_view name);
// "float32", ...; only for floating types.
std::string_view dtype_torch_name(DType dtype);

inline bool is_floating(DType d) {
  return d == DType::kF64 || d == DType::kF32 || d == DType::kF16 || d == DType::kBF16;
}

}  // namespace keel
