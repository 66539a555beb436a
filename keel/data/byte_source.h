// Bytes of a plain or gzip file, read forward in small pieces so that a bomb of zeros costs no
// memory.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace keel {

class ByteSource {
 public:
  // Opens a regular file. Throws keel::Error if that fails.
  ByteSource(const std::string& path, bool gzip);
  ~ByteSource();
  ByteSource(const ByteSource&) = delete;

  // The next byte, or -1 at the end. Throws keel::Error if reading or decompressing fails, or if
  // the data inflates beyond what text could (see kMaxInflation).
  int next() {
    return position_ < size_ || fill() ? static_cast<unsigned char>(buffer_[position_++]) : -1;
  }

  // Bytes that lie ready (at least one unless at the end); consume() takes them.
  std::string_view ready() {
    return position_ < size_ || fill()
               ? std::string_view(buffer_.data() + position_, size_ - position_)
               : std::string_view();
  }
  void consume(size_t n) { position_ += n; }

 private:
  struct Inflater;
  bool fill();

  std::string path_;
  std::FILE* file_ = nullptr;
  std::unique_ptr<Inflater> inflater_;
  std::vector<char> buffer_;
  size_t position_ = 0, size_ = 0;
};

}  // namespace keel
