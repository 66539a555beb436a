#include "keel/io/half.h"

#include <cstring>

#include "keel/base/error.h"

namespace keel {
namespace {

template <class T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

template <class T>
void store(std::byte* p, T value) {
  std::memcpy(p, &value, sizeof(T));
}

}  // namespace

void to_f32(DType dtype, std::span<const std::byte> bytes, std::span<float> out) {
  const size_t n = out.size();
  KEEL_CHECK(bytes.size() == n * static_cast<size_t>(dtype_bytes(dtype)), "{} bytes for {} x {}",
             bytes.size(), n, dtype_name(dtype));
  const std::byte* p = bytes.data();
  switch (dtype) {
    case DType::kF32:
      if (n > 0) std::memcpy(out.data(), p, n * 4);
      return;
    case DType::kF64:
      for (size_t i = 0; i < n; ++i) out[i] = static_cast<float>(load<double>(p + 8 * i));
      return;
    case DType::kF16:
      for (size_t i = 0; i < n; ++i) out[i] = f16_to_f32(load<uint16_t>(p + 2 * i));
      return;
    case DType::kBF16:
      for (size_t i = 0; i < n; ++i) out[i] = bf16_to_f32(load<uint16_t>(p + 2 * i));
      return;
    default:
      KEEL_CHECK(false, "{} is not floating", dtype_name(dtype));
  }
}

void from_f32(DType dtype, std::span<const float> in, std::span<std::byte> bytes) {
  const size_t n = in.size();
  KEEL_CHECK(bytes.size() == n * static_cast<size_t>(dtype_bytes(dtype)), "{} bytes for {} x {}",
             bytes.size(), n, dtype_name(dtype));
  std::byte* p = bytes.data();
  switch (dtype) {
    case DType::kF32:
      if (n > 0) std::memcpy(p, in.data(), n * 4);
      return;
    case DType::kF64:
      for (size_t i = 0; i < n; ++i) store<double>(p + 8 * i, in[i]);
      return;
    case DType::kF16:
      for (size_t i = 0; i < n; ++i) store<uint16_t>(p + 2 * i, f32_to_f16(in[i]));
      return;
    case DType::kBF16:
      for (size_t i = 0; i < n; ++i) store<uint16_t>(p + 2 * i, f32_to_bf16(in[i]));
      return;
    default:
      KEEL_CHECK(false, "{} is not floating", dtype_name(dtype));
  }
}

}  // namespace keel
