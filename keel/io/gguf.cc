#include "keel/io/gguf.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "keel/base/error.h"
#include "keel/io/file_error.h"
#include "keel/io/safetensors.h"
#include "keel/io/sniff.h"

namespace keel {
namespace {

// Value types of metadata.
enum GgufType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

constexpr uint64_t kDefaultAlignment = 32;
constexpr uint32_t kMaxDims = 4;

// Bounded reading from the front of the file.
class Cursor {
 public:
  Cursor(const std::string& path, std::span<const std::byte> bytes) : path_(path), bytes_(bytes) {}

  template <class T>
  T read() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }

  std::string text() {
    const auto n = read<uint64_t>();
    const auto s = take(n);
    return {reinterpret_cast<const char*>(s.data()), s.size()};
  }

  // A count of things that take at least min_bytes each.
  uint64_t count(uint64_t min_bytes, const char* what) {
    const auto n = read<uint64_t>();
    if (n > (bytes_.size() - at_) / min_bytes) {
      throw_file_error("file_truncated", path_, "expected {} {}, got too few bytes for them", n,
                       what);
    }
    return n;
  }

  uint64_t at() const { return at_; }
  const std::string& path() const { return path_; }

 private:
  std::span<const std::byte> take(uint64_t n) {
    if (n > bytes_.size() - at_) {
      throw_file_error("file_truncated", path_, "expected {} more bytes at {}, got {}", n, at_,
                       bytes_.size() - at_);
    }
    const auto out = bytes_.subspan(at_, n);
    at_ += n;
    return out;
  }

  const std::string& path_;
  std::span<const std::byte> bytes_;
  uint64_t at_ = 0;
};

uint64_t value_bytes(uint32_t type) {
  switch (type) {
    case kU8:
    case kI8:
    case kBool:
      return 1;
    case kU16:
    case kI16:
      return 2;
    case kU32:
    case kI32:
    case kF32:
      return 4;
    default:
      return 8;  // a string has at least its length
  }
}

int64_t read_integer(Cursor& c, uint32_t type) {
  switch (type) {
    case kU8:
      return c.read<uint8_t>();
    case kI8:
      return c.read<int8_t>();
    case kU16:
      return c.read<uint16_t>();
    case kI16:
      return c.read<int16_t>();
    case kU32:
      return c.read<uint32_t>();
    case kI32:
      return c.read<int32_t>();
    case kBool:
      return c.read<uint8_t>() != 0;
    default:
      break;
  }
  const auto bits = c.read<uint64_t>();
  if (type == kU64 && bits >> 63 != 0) {
    throw_file_error("bad_header", c.path(), "expected integers below 2^63, got {}", bits);
  }
  return static_cast<int64_t>(bits);
}

double read_float(Cursor& c, uint32_t type) {
  return type == kF32 ? static_cast<double>(c.read<float>()) : c.read<double>();
}

GgufValue read_array(Cursor& c, const std::string& key) {
  const auto type = c.read<uint32_t>();
  if (type > kF64 || type == kArray) {
    throw_file_error("bad_header", c.path(), "expected an array of plain values in {}, got type {}",
                     key, type);
  }
  const uint64_t n = c.count(value_bytes(type), "array elements");
  if (type == kString) {
    std::vector<std::string> out(n);
    for (auto& x : out) x = c.text();
    return out;
  }
  if (type == kF32 || type == kF64) {
    std::vector<double> out(n);
    for (auto& x : out) x = read_float(c, type);
    return out;
  }
  std::vector<int64_t> out(n);
  for (auto& x : out) x = read_integer(c, type);
  return out;
}

GgufValue read_value(Cursor& c, const std::string& key) {
  const auto type = c.read<uint32_t>();
  switch (type) {
    case kString:
      return c.text();
    case kArray:
      return read_array(c, key);
    case kF32:
    case kF64:
      return read_float(c, type);
    case kBool:
      return read_integer(c, type) != 0;
    default:
      break;
  }
  if (type > kF64) {
    throw_file_error("bad_header", c.path(), "expected a known type for {}, got {}", key, type);
  }
  return read_integer(c, type);
}

// begin is still relative to the data section.
GgufTensor read_tensor(Cursor& c) {
  GgufTensor t;
  t.name = c.text();
  const std::string where = c.path() + ": " + t.name;
  const auto num_dims = c.read<uint32_t>();
  if (num_dims > kMaxDims) {
    throw_file_error("bad_header", where, "expected at most {} dims, got {}", kMaxDims, num_dims);
  }
  uint64_t elements = 1;
  for (uint32_t i = 0; i < num_dims; ++i) {
    const auto d = c.read<uint64_t>();
    if (d == 0 || __builtin_mul_overflow(elements, d, &elements) || elements >> 48 != 0) {
      throw_file_error("bad_header", where, "expected sizes above 0, product below 2^48, got {}",
                       d);
    }
    t.shape.insert(t.shape.begin(), static_cast<int64_t>(d));
  }
  const auto type = c.read<uint32_t>();
  const auto info = ggml_type_info(type);
  if (!info) {
    throw_file_error("bad_dtype", where,
                     "expected F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or Q6_K, "
                     "got {}; try: another quantisation of the model",
                     ggml_type_name(type));
  }
  t.type = info->type;
  const int64_t row = t.shape.empty() ? 1 : t.shape.back();
  if (row % info->block_elements != 0) {
    throw_file_error("bad_header", where, "expected rows of a multiple of {} for {}, got {}",
                     info->block_elements, info->name, row);
  }
  t.begin = c.read<uint64_t>();
  const uint64_t size = elements / static_cast<uint64_t>(info->block_elements) *
                        static_cast<uint64_t>(info->block_bytes);
  if (__builtin_add_overflow(t.begin, size, &t.end)) {
    throw_file_error("bad_offsets", where, "expected an offset in the file, got {}", t.begin);
  }
  return t;
}

int read_version(Cursor& c, std::span<const std::byte> bytes) {
  if (bytes.empty()) {
    throw_file_error("empty_file", c.path(), "expected a GGUF file, got an empty file");
  }
  refuse_lfs_pointer(c.path(), bytes);
  constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
  if (c.read<uint32_t>() != kMagic) {
    throw_file_error("wrong_format", c.path(), "expected a GGUF file, got something else");
  }
  const auto version = c.read<uint32_t>();
  if (version != 2 && version != 3) {
    throw_file_error("wrong_format", c.path(), "expected GGUF version 2 or 3, got {}", version);
  }
  return static_cast<int>(version);
}

// Turns relative offsets into file offsets and checks them.
void place_tensors(const std::string& path, std::vector<GgufTensor>& tensors, uint64_t data_begin,
                   uint64_t alignment, uint64_t file_bytes) {
  std::vector<GgufTensor*> order;
  for (auto& t : tensors) {
    const std::string where = path + ": " + t.name;
    if (t.begin % alignment != 0) {
      throw_file_error("bad_offsets", where, "expected an offset at a multiple of {}, got {}",
                       alignment, t.begin);
    }
    if (data_begin > file_bytes || t.end > file_bytes - data_begin) {
      throw_file_error("file_truncated", where,
                       "expected data up to byte {}, got {}; try: download the file again", t.end,
                       file_bytes - std::min(data_begin, file_bytes));
    }
    t.begin += data_begin;
    t.end += data_begin;
    order.push_back(&t);
  }
  std::ranges::sort(order, {}, &GgufTensor::begin);
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i]->begin < order[i - 1]->end) {
      throw_file_error("overlap", path + ": " + order[i]->name,
                       "expected its own bytes, got those of {}", order[i - 1]->name);
    }
  }
}

}  // namespace

GgufFile::GgufFile(const std::string& path) : file_(path) {
  const auto bytes = file_.bytes();
  Cursor c(path, bytes);
  version_ = read_version(c, bytes);
  const uint64_t num_tensors = c.count(24, "tensors");
  const uint64_t num_values = c.count(13, "metadata values");
  for (uint64_t i = 0; i < num_values; ++i) {
    const auto key = c.text();
    if (!metadata_.try_emplace(key, read_value(c, key)).second) {
      throw_file_error("bad_header", path, "expected each key once, got {} twice", key);
    }
  }
  for (uint64_t i = 0; i < num_tensors; ++i) {
    tensors_.push_back(read_tensor(c));
    if (!index_.try_emplace(tensors_.back().name, i).second) {
      throw_file_error("bad_header", path, "expected each tensor once, got {} twice",
                       tensors_.back().name);
    }
  }
  const int64_t alignment = integer("general.alignment", kDefaultAlignment);
  if (alignment < 1 || alignment > 1 << 20) {
    throw_file_error("bad_header", path, "expected general.alignment of 1 to 2^20, got {}",
                     alignment);
  }
  const auto a = static_cast<uint64_t>(alignment);
  place_tensors(path, tensors_, (c.at() + a - 1) / a * a, a, bytes.size());
}

const GgufTensor* GgufFile::find(const std::string& name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

void GgufFile::read_f32(const GgufTensor& tensor, std::span<float> out) const {
  KEEL_CHECK(static_cast<int64_t>(out.size()) == num_elements(tensor.shape), "{} values for {}",
             out.size(), tensor.name);
  read_f32(tensor, 0, out);
}

void GgufFile::read_f32(const GgufTensor& tensor, int64_t begin, std::span<float> out) const {
  const auto info = *ggml_type_info(static_cast<uint32_t>(tensor.type));
  const auto count = static_cast<int64_t>(out.size());
  KEEL_CHECK(begin >= 0 && begin % info.block_elements == 0 && count % info.block_elements == 0 &&
                 begin + count <= num_elements(tensor.shape),
             "{}: elements {} to {}", tensor.name, begin, begin + count);
  const auto bytes = file_.bytes().subspan(
      tensor.begin + static_cast<uint64_t>(begin / info.block_elements * info.block_bytes),
      static_cast<uint64_t>(count / info.block_elements * info.block_bytes));
  dequantize(tensor.type, bytes, out);
}

template <class T>
const T* GgufFile::get(const std::string& key, const char* expected, bool required) const {
  const auto it = metadata_.find(key);
  const std::string where = path() + ": " + key;
  if (it == metadata_.end()) {
    if (required) throw_file_error("missing_field", where, "expected {}, got nothing", expected);
    return nullptr;
  }
  const T* value = std::get_if<T>(&it->second);
  if (value == nullptr)
    throw_file_error("wrong_type", where, "expected {}, got another type", expected);
  return value;
}

int64_t GgufFile::integer(const std::string& key, std::optional<int64_t> fallback) const {
  const auto* value = get<int64_t>(key, "an integer", !fallback);
  return value != nullptr ? *value : *fallback;
}

double GgufFile::number(const std::string& key, std::optional<double> fallback) const {
  const auto* value = get<double>(key, "a number", !fallback);
  if (value == nullptr) return *fallback;
  if (!std::isfinite(*value)) {
    throw_file_error("bad_value", path() + ": " + key, "expected a finite number, got {}", *value);
  }
  return *value;
}

bool GgufFile::boolean(const std::string& key, bool fallback) const {
  const auto* value = get<bool>(key, "true or false", false);
  return value != nullptr ? *value : fallback;
}

std::string GgufFile::text(const std::string& key, std::optional<std::string> fallback) const {
  const auto* value = get<std::string>(key, "text", !fallback);
  return value != nullptr ? *value : *fallback;
}

std::vector<std::string> GgufFile::texts(const std::string& key) const {
  const auto* value = get<std::vector<std::string>>(key, "a list of texts", false);
  return value != nullptr ? *value : std::vector<std::string>();
}

std::vector<int64_t> GgufFile::integers(const std::string& key) const {
  const auto* value = get<std::vector<int64_t>>(key, "a list of integers", false);
  return value != nullptr ? *value : std::vector<int64_t>();
}

std::vector<double> GgufFile::numbers(const std::string& key) const {
  const auto* value = get<std::vector<double>>(key, "a list of numbers", false);
  return value != nullptr ? *value : std::vector<double>();
}

}  // namespace keel
