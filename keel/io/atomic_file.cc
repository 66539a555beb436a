#include "keel/io/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "keel/base/error.h"
#include "keel/io/file_error.h"

namespace keel {
namespace {

namespace fs = std::filesystem;
constexpr size_t kBufferBytes = 1 << 20;
constexpr const char* kTemporaryMark = ".tmp-";

std::string folder_of(const std::string& path) {
  const auto parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string temporary_name(const std::string& path) {
  static std::atomic<uint64_t> counter = 0;
  return fmt::format("{}/.{}{}{}-{}", folder_of(path), fs::path(path).filename().string(),
                     kTemporaryMark, ::getpid(), counter.fetch_add(1));
}

}  // namespace

void sync_folder(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw_errno(folder, "open", errno);
  const int failed = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  // Some network file systems cannot sync a folder and say EINVAL.
  if (failed != 0 && failed != EINVAL) throw_errno(folder, "sync", failed);
}

AtomicWriter::AtomicWriter(const std::string& path)
    : path_(path), temporary_path_(temporary_name(path)) {
  fd_ = ::open(temporary_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) throw_errno(path_, "create", errno);
  buffer_.reserve(kBufferBytes);
}

AtomicWriter::~AtomicWriter() {
  if (fd_ < 0) return;
  close_fd();
  ::unlink(temporary_path_.c_str());
}

void AtomicWriter::write(std::span<const std::byte> bytes) {
  KEEL_CHECK(fd_ >= 0, "{}: write after commit", path_);
  num_bytes_ += bytes.size();
  checksum_.update(bytes);
  if (buffer_.size() + bytes.size() > kBufferBytes) flush();
  if (bytes.size() >= kBufferBytes) {
    write_through(bytes);
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
}

void AtomicWriter::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void AtomicWriter::commit() {
  KEEL_CHECK(fd_ >= 0, "{}: commit twice", path_);
  flush();
  if (::fsync(fd_) != 0) throw_errno(path_, "write", errno);
  if (::rename(temporary_path_.c_str(), path_.c_str()) != 0) throw_errno(path_, "create", errno);
  close_fd();
  sync_folder(folder_of(path_));
}

void AtomicWriter::flush() {
  write_through(buffer_);
  buffer_.clear();
}

void AtomicWriter::write_through(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_errno(path_, "write", errno);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void AtomicWriter::close_fd() {
  ::close(fd_);
  fd_ = -1;
}

void write_file_atomic(const std::string& path, std::span<const std::byte> bytes) {
  AtomicWriter writer(path);
  writer.write(bytes);
  writer.commit();
}

void write_file_atomic(const std::string& path, std::string_view text) {
  write_file_atomic(path, std::as_bytes(std::span(text)));
}

void remove_stale_temporaries(const std::string& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const auto name = entry.path().filename().string();
    if (name.starts_with('.') && name.find(kTemporaryMark) != std::string::npos) {
      fs::remove_all(entry.path(), ignored);
    }
  }
}

}  // namespace keel
