#include "keel/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "keel/io/file_error.h"

namespace keel {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw_errno(path, "open", errno);
  struct stat info = {};
  const int failed = ::fstat(fd, &info) == 0 ? 0 : errno;
  if (failed != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    if (failed != 0) throw_errno(path, "read", failed);
    throw_file_error("wrong_type", path, "expected a file, got a folder or a device");
  }
  num_bytes_ = static_cast<size_t>(info.st_size);
  if (num_bytes_ > 0) {
    void* p = ::mmap(nullptr, num_bytes_, PROT_READ, MAP_PRIVATE, fd, 0);
    const int map_failed = p == MAP_FAILED ? errno : 0;
    ::close(fd);
    if (map_failed != 0) throw_errno(path, "map", map_failed);
    data_ = static_cast<const std::byte*>(p);
  } else {
    ::close(fd);
  }
}

MappedFile::~MappedFile() { unmap(); }

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      num_bytes_(std::exchange(other.num_bytes_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    unmap();
    path_ = std::move(other.path_);
    data_ = std::exchange(other.data_, nullptr);
    num_bytes_ = std::exchange(other.num_bytes_, 0);
  }
  return *this;
}

void MappedFile::drop_pages(std::span<const std::byte> range) const {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(range.data());
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t last = (begin + range.size()) / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

void MappedFile::unmap() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), num_bytes_);
  data_ = nullptr;
}

}  // namespace keel
