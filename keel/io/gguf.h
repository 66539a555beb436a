// GGUF files (versions 2 and 3, little-endian): metadata and tensors, checked on opening.
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
//
// FileError faults: missing_file, empty_file, lfs_pointer, wrong_format, file_truncated,
// bad_header, bad_dtype (a type that Keel does not read), bad_offsets, overlap; missing_field and
// wrong_type from the getters.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "keel/io/dequantize.h"
#include "keel/io/mapped_file.h"

namespace keel {

// Integers of any width become int64 (above 2^63 - 1: refused), floats double, arrays of booleans
// arrays of 0 and 1.
using GgufValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>,
                               std::vector<double>, std::vector<std::string>>;

struct GgufTensor {
  std::string name;
  GgmlType type = GgmlType::kF32;
  std::vector<int64_t> shape;  // outermost first, as in Hugging Face files
  uint64_t begin = 0;          // bytes [begin, end) of the file
  uint64_t end = 0;
};

class GgufFile {
 public:
  explicit GgufFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  int version() const { return version_; }
  const std::map<std::string, GgufValue>& metadata() const { return metadata_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  // nullptr if there is none.
  const GgufTensor* find(const std::string& name) const;
  // out: product of the shape.
  void read_f32(const GgufTensor& tensor, std::span<float> out) const;
  // Elements [begin, begin + out.size()), both multiples of the type's block.
  void read_f32(const GgufTensor& tensor, int64_t begin, std::span<float> out) const;

  bool has(const std::string& key) const { return metadata_.contains(key); }
  // Required without a fallback.
  int64_t integer(const std::string& key, std::optional<int64_t> fallback = std::nullopt) const;
  double number(const std::string& key, std::optional<double> fallback = std::nullopt) const;
  bool boolean(const std::string& key, bool fallback) const;
  std::string text(const std::string& key, std::optional<std::string> fallback = {}) const;
  // Empty if absent.
  std::vector<std::string> texts(const std::string& key) const;
  std::vector<int64_t> integers(const std::string& key) const;
  std::vector<double> numbers(const std::string& key) const;

 private:
  template <class T>
  const T* get(const std::string& key, const char* expected, bool required) const;

  MappedFile file_;
  int version_ = 0;
  std::map<std::string, GgufValue> metadata_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string, size_t> index_;
};

}  // namespace keel
