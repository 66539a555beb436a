// A file mapped into memory, read-only: pages arrive when they are touched and can be dropped by
// the kernel. The file must not shrink while it is mapped (the kernel would raise SIGBUS).
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace keel {

class MappedFile {
 public:
  // Throws FileError: missing, a folder, no permission. An empty file gives empty bytes().
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, num_bytes_}; }

  // Whole pages of `range` (a part of bytes()) leave the program's memory; they come back from the
  // file when they are touched again. For files that are read once.
  void drop_pages(std::span<const std::byte> range) const;

 private:
  void unmap();

  std::string path_;
  const std::byte* data_ = nullptr;
  size_t num_bytes_ = 0;
};

}  // namespace keel
