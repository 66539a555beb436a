#include "keel/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "keel/base/json.h"
#include "keel/io/file_error.h"
#include "keel/io/json_file.h"
#include "keel/io/sniff.h"

namespace keel {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation
constexpr uint64_t kDataAlignment = 64;

std::optional<uint64_t> byte_count(DType dtype, std::span<const int64_t> shape) {
  uint64_t n = static_cast<uint64_t>(dtype_bytes(dtype));
  bool zero = false;
  for (const int64_t d : shape) {
    if (d < 0) return std::nullopt;
    if (d == 0) {
      zero = true;
    } else if (__builtin_mul_overflow(n, static_cast<uint64_t>(d), &n) || n >> 62 != 0) {
      return std::nullopt;
    }
  }
  return zero ? 0 : n;
}

uint64_t header_length(const std::string& path, std::span<const std::byte> bytes) {
  if (bytes.empty()) throw_file_error("empty_file", path, "expected tensors, got an empty file");
  refuse_lfs_pointer(path, bytes);
  refuse_pickle(path, bytes);
  if (bytes.size() < 8) {
    throw_file_error("file_truncated", path,
                     "expected 8 bytes of header length, got {} bytes; try: download it again",
                     bytes.size());
  }
  uint64_t n = 0;
  std::memcpy(&n, bytes.data(), 8);
  if (n > kMaxHeaderBytes || n < 2) {
    throw_file_error("bad_header", path,
                     "expected a header of 2 to {} bytes, got {}; try: check that it is a "
                     "safetensors file",
                     kMaxHeaderBytes, n);
  }
  if (n > bytes.size() - 8) {
    throw_file_error("file_truncated", path,
                     "expected a header of {} bytes, got only {}; try: download it again", n,
                     bytes.size() - 8);
  }
  return n;
}

Json parse_header(const std::string& path, std::string_view text) {
  std::unordered_set<std::string> names;
  std::string duplicate;
  const auto callback = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 1) {
      const auto& name = parsed.get_ref<const std::string&>();
      if (!names.insert(name).second && duplicate.empty()) duplicate = name;
    }
    return true;
  };
  if (nests_too_deep(text)) throw_file_error("bad_header", path, "expected JSON of small depth");
  Json header;
  try {
    header = Json::parse(text, callback);
  } catch (const Json::parse_error& e) {
    throw_file_error("bad_header", path,
                     "expected a JSON header, got an error at byte {} of it; try: download the "
                     "file again",
                     e.byte);
  } catch (const Json::exception&) {
    throw_file_error("bad_header", path, "expected a JSON header, got a number out of range");
  }
  if (!duplicate.empty()) {
    throw_file_error("bad_header", path, "expected each tensor once, got '{}' twice", duplicate);
  }
  if (!header.is_object()) {
    throw_file_error("bad_header", path, "expected a JSON object as header, got {}",
                     header.type_name());
  }
  return header;
}

SafetensorsMetadata parse_metadata(const std::string& path, const Json& j) {
  SafetensorsMetadata metadata;
  if (!j.is_object()) throw_file_error("bad_header", path, "expected __metadata__ as an object");
  for (const auto& [key, value] : j.items()) {
    if (!value.is_string()) {
      throw_file_error("bad_header", path, "expected text in __metadata__.{}, got {}", key,
                       value.type_name());
    }
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

// where: "path: tensor name".
std::vector<int64_t> parse_shape(const std::string& where, const Json& j) {
  std::vector<int64_t> shape;
  for (const auto& d : j) {
    const bool fits = d.is_number_unsigned() && d.get<uint64_t>() >> 62 == 0;
    if (!fits) {
      throw_file_error("bad_header", where, "expected sizes >= 0 in shape, got {}", j.dump());
    }
    shape.push_back(d.get<int64_t>());
  }
  return shape;
}

SafetensorsTensor parse_tensor(const std::string& path, const std::string& name, const Json& j,
                               uint64_t data_bytes) {
  const std::string where = path + ": " + name;
  const auto field = [&](const char* key) -> const Json& {
    const auto it = j.is_object() ? j.find(key) : j.end();
    if (!j.is_object() || it == j.end()) {
      throw_file_error("bad_header", where, "expected '{}' in the header, got none", key);
    }
    return *it;
  };
  const Json& dtype = field("dtype");
  const Json& shape = field("shape");
  const Json& offsets = field("data_offsets");
  if (!dtype.is_string() || !shape.is_array() || !offsets.is_array() || offsets.size() != 2) {
    throw_file_error("bad_header", where, "expected dtype, shape, data_offsets [begin, end]");
  }
  const auto known = dtype_from_name(dtype.get_ref<const std::string&>());
  if (!known) {
    throw_file_error("bad_dtype", where,
                     "expected dtype F64, F32, F16, BF16, I64, I32, I16, I8, U8 or BOOL, got "
                     "{}; try: convert the model to BF16 or F32",
                     name, dtype.dump());
  }
  SafetensorsTensor t{name, *known, parse_shape(where, shape), 0, 0};
  if (!offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned() ||
      offsets[0].get<uint64_t>() > offsets[1].get<uint64_t>()) {
    throw_file_error("bad_offsets", where, "expected data_offsets 0 <= begin <= end, got {}",
                     offsets.dump());
  }
  t.begin = offsets[0].get<uint64_t>();
  t.end = offsets[1].get<uint64_t>();
  const auto want = byte_count(t.dtype, t.shape);
  if (!want || *want != t.end - t.begin) {
    throw_file_error("bad_offsets", where, "expected {} bytes for {} {}, got {}",
                     want ? std::to_string(*want) : "fewer than 2^62", dtype_name(t.dtype),
                     shape_text(t.shape), t.end - t.begin);
  }
  if (t.end > data_bytes) {
    throw_file_error("file_truncated", where,
                     "expected data up to byte {}, got {} bytes; try: download the file again",
                     name, t.end, data_bytes);
  }
  return t;
}

// Tensors sorted by begin must tile [0, data_bytes).
void check_tiling(const std::string& path, const std::vector<SafetensorsTensor>& tensors,
                  uint64_t data_bytes) {
  uint64_t at = 0;
  for (const auto& t : tensors) {
    const std::string where = path + ": " + t.name;
    if (t.begin < at) {
      throw_file_error("overlap", where, "expected its own bytes, got bytes of another tensor");
    }
    if (t.begin > at) {
      throw_file_error("bad_offsets", where, "expected data at byte {}, got {} (a hole)", at,
                       t.begin);
    }
    at = t.end;
  }
  if (at != data_bytes) {
    throw_file_error("trailing_data", path, "expected {} bytes of tensors, got {}", at, data_bytes);
  }
}

}  // namespace

int64_t num_elements(std::span<const int64_t> shape) {
  const auto n = byte_count(DType::kU8, shape);
  KEEL_REQUIRE(n.has_value(), "[shape] expected sizes >= 0 with a product below 2^62, got {}",
               shape_text(shape));
  return static_cast<int64_t>(*n);
}

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  const auto bytes = file_.bytes();
  const uint64_t length = header_length(path, bytes);
  const uint64_t data_begin = 8 + length;
  const uint64_t data_bytes = bytes.size() - data_begin;
  const Json header = parse_header(path, {reinterpret_cast<const char*>(bytes.data()) + 8, length});
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      metadata_ = parse_metadata(path, value);
    } else {
      tensors_.push_back(parse_tensor(path, name, value, data_bytes));
    }
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  check_tiling(path, tensors_, data_bytes);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    tensors_[i].begin += data_begin;
    tensors_[i].end += data_begin;
    index_[tensors_[i].name] = i;
  }
}

const SafetensorsTensor* SafetensorsFile::find(const std::string& name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

std::span<const std::byte> SafetensorsFile::bytes(const SafetensorsTensor& tensor) const {
  return file_.bytes().subspan(tensor.begin, tensor.end - tensor.begin);
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<SafetensorsDecl> decls,
                                     const SafetensorsMetadata& metadata)
    : file_(path), decls_(std::move(decls)) {
  OrderedJson header = OrderedJson::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t at = 0;
  std::unordered_set<std::string_view> names;
  for (const auto& d : decls_) {
    const auto n = byte_count(d.dtype, d.shape);
    KEEL_CHECK(n.has_value(), "{}: shape {}", d.name, shape_text(d.shape));
    KEEL_CHECK(names.insert(d.name).second, "{} declared twice", d.name);
    header[d.name] = {{"dtype", std::string(dtype_name(d.dtype))},
                      {"shape", d.shape},
                      {"data_offsets", {at, at + *n}}};
    at += *n;
    sizes_.push_back(*n);
  }
  std::string text = header.dump();
  text.append((kDataAlignment - (text.size() + 8) % kDataAlignment) % kDataAlignment, ' ');
  const uint64_t length = text.size();
  file_.write(std::as_bytes(std::span(&length, 1)));
  file_.write(text);
  skip_complete();
}

void SafetensorsWriter::write(const std::string& name, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  KEEL_CHECK(current_ < decls_.size() && decls_[current_].name == name, "{}: {} is not in turn",
             file_.path(), name);
  KEEL_CHECK(written_ + bytes.size() <= sizes_[current_], "{}: {} has too many bytes", file_.path(),
             name);
  file_.write(bytes);
  written_ += bytes.size();
  skip_complete();
}

void SafetensorsWriter::skip_complete() {
  while (current_ < decls_.size() && written_ == sizes_[current_]) {
    ++current_;
    written_ = 0;
  }
}

void SafetensorsWriter::commit() {
  KEEL_CHECK(current_ == decls_.size(), "{}: {} is incomplete", file_.path(),
             decls_[current_].name);
  file_.commit();
}

}  // namespace keel
