// Files that are complete or absent: written under a temporary name in the same folder, synced,
// renamed over the final name, and the folder synced. After a crash only ".<name>.tmp-*" can be
// left behind (remove_stale_temporaries).
//
// Errors: full disk, read-only or forbidden folder -> keel::Error kResource, one line "[path] ...".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/io/checksum.h"

namespace keel {

void write_file_atomic(const std::string& path, std::span<const std::byte> bytes);
void write_file_atomic(const std::string& path, std::string_view text);

// Removes what killed writers left in `folder` (not in its subfolders). No writer may be at work.
void remove_stale_temporaries(const std::string& folder);

// Syncs a folder's entries (after renaming a folder into it).
void sync_folder(const std::string& folder);

// For content that is too large to hold. Not thread-safe. Without commit() nothing remains.
class AtomicWriter {
 public:
  explicit AtomicWriter(const std::string& path);
  ~AtomicWriter();
  AtomicWriter(const AtomicWriter&) = delete;
  AtomicWriter& operator=(const AtomicWriter&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  // Makes the file visible under its name; no write may follow.
  void commit();

  uint64_t num_bytes() const { return num_bytes_; }
  // Of all bytes so far (see checksum.h).
  uint64_t checksum() const { return checksum_.value(); }
  const std::string& path() const { return path_; }

 private:
  void flush();
  void write_through(std::span<const std::byte> bytes);
  void close_fd();

  std::string path_;
  std::string temporary_path_;
  int fd_ = -1;
  uint64_t num_bytes_ = 0;
  Checksum checksum_;
  std::vector<std::byte> buffer_;
};

}  // namespace keel
