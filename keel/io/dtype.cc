#include "keel/io/dtype.h"

#include <array>

#include "keel/base/error.h"

namespace keel {
namespace {

struct Row {
  DType dtype;
  int num_bytes;
  std::string_view name;
  std::string_view torch_name;
  std::string_view short_name;
};

constexpr std::array<Row, 10> kRows = {{
    {DType::kF64, 8, "F64", "float64", "f64"},
    {DType::kF32, 4, "F32", "float32", "f32"},
    {DType::kF16, 2, "F16", "float16", "f16"},
    {DType::kBF16, 2, "BF16", "bfloat16", "bf16"},
    {DType::kI64, 8, "I64", "", ""},
    {DType::kI32, 4, "I32", "", ""},
    {DType::kI16, 2, "I16", "", ""},
    {DType::kI8, 1, "I8", "", ""},
    {DType::kU8, 1, "U8", "", ""},
    {DType::kBool, 1, "BOOL", "", ""},
}};

const Row& row(DType dtype) {
  for (const auto& r : kRows) {
    if (r.dtype == dtype) return r;
  }
  KEEL_CHECK(false, "dtype {}", static_cast<int>(dtype));
}

}  // namespace

int dtype_bytes(DType dtype) { return row(dtype).num_bytes; }
std::string_view dtype_name(DType dtype) { return row(dtype).name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const auto& r : kRows) {
    if (r.name == name) return r.dtype;
  }
  return std::nullopt;
}

std::optional<DType> dtype_from_torch_name(std::string_view name) {
  for (const auto& r : kRows) {
    if (!name.empty() && (r.torch_name == name || r.short_name == name)) return r.dtype;
  }
  return std::nullopt;
}

std::string_view dtype_torch_name(DType dtype) {
  KEEL_CHECK(is_floating(dtype), "{} has no torch name here", dtype_name(dtype));
  return row(dtype).torch_name;
}

}  // namespace keel
