// The safetensors container: u64 little-endian header length, JSON header, tensor bytes.
// https://huggingface.co/docs/safetensors (format).
//
// Reading is strict, before any tensor byte is used. FileError faults: missing_file, empty_file,
// file_truncated, wrong_format (pickle), lfs_pointer, bad_header (length, JSON, duplicate names),
// bad_dtype, bad_offsets (range, hole, size against dtype * shape), trailing_data, overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "keel/io/atomic_file.h"
#include "keel/io/dtype.h"
#include "keel/io/mapped_file.h"

namespace keel {

struct SafetensorsTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // empty: a scalar
  uint64_t begin = 0;          // bytes [begin, end) of the file
  uint64_t end = 0;
};

// Product of the sizes; throws Error if one is negative or the product passes 2^62.
int64_t num_elements(std::span<const int64_t> shape);
// "[2, 3]".
std::string shape_text(std::span<const int64_t> shape);

using SafetensorsMetadata = std::map<std::string, std::string>;

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  // In the order of their bytes.
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
  const SafetensorsMetadata& metadata() const { return metadata_; }
  // nullptr if there is none.
  const SafetensorsTensor* find(const std::string& name) const;
  // Raw little-endian elements; may be unaligned (see to_f32 in half.h). Lives as long as this.
  std::span<const std::byte> bytes(const SafetensorsTensor& tensor) const;
  // See MappedFile: for tensors that are read once.
  void drop_pages(const SafetensorsTensor& tensor) const { file_.drop_pages(bytes(tensor)); }

 private:
  MappedFile file_;
  std::vector<SafetensorsTensor> tensors_;
  std::unordered_map<std::string, size_t> index_;
  SafetensorsMetadata metadata_;
};

struct SafetensorsDecl {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

// Streams tensors to disk, in the order of `decls`, without holding them. Atomic like AtomicWriter.
// The header is padded so that tensor bytes start at a multiple of 64, and declaring wide types
// first keeps every tensor aligned.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::string& path, std::vector<SafetensorsDecl> decls,
                    const SafetensorsMetadata& metadata = {{"format", "pt"}});

  // The next bytes of tensor `name`; one tensor may come in pieces. A piece for another tensor than
  // the one in turn, or too many bytes, is an internal error.
  void write(const std::string& name, std::span<const std::byte> bytes);
  // All tensors must be complete.
  void commit();

  uint64_t num_bytes() const { return file_.num_bytes(); }
  uint64_t checksum() const { return file_.checksum(); }

 private:
  void skip_complete();

  AtomicWriter file_;
  std::vector<SafetensorsDecl> decls_;
  std::vector<uint64_t> sizes_;
  size_t current_ = 0;
  uint64_t written_ = 0;  // bytes of the current tensor
};

}  // namespace keel
