#include "keel/data/byte_source.h"

#include <zlib.h>

#include <cerrno>
#include <cstring>

#include "keel/base/error.h"

namespace keel {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 18;
// Text data sets shrink 3 to 30 times; a file far beyond that is a bomb or no data.
constexpr uint64_t kMaxInflation = 300;
constexpr uint64_t kAlwaysAllowedBytes = uint64_t{64} << 20;

}  // namespace

struct ByteSource::Inflater {
  z_stream stream{};
  std::vector<unsigned char> input = std::vector<unsigned char>(kBufferBytes);
  uint64_t total_in = 0, total_out = 0;
  bool done = false;

  // 16 + 15: gzip header, largest window.
  Inflater() { KEEL_CHECK(inflateInit2(&stream, 16 + MAX_WBITS) == Z_OK, "inflateInit2"); }
  ~Inflater() { inflateEnd(&stream); }

  // Bytes written to out; 0 at the end.
  size_t read(std::FILE* file, const std::string& path, char* out, size_t capacity) {
    stream.next_out = reinterpret_cast<unsigned char*>(out);
    stream.avail_out = static_cast<unsigned>(capacity);
    while (stream.avail_out == capacity && !done) {
      if (stream.avail_in == 0) {
        stream.avail_in = static_cast<unsigned>(std::fread(input.data(), 1, input.size(), file));
        stream.next_in = input.data();
        total_in += stream.avail_in;
        KEEL_REQUIRE(stream.avail_in > 0, "[{}] the gzip data ends too early", path);
      }
      const int rc = inflate(&stream, Z_NO_FLUSH);
      KEEL_REQUIRE(rc == Z_OK || rc == Z_STREAM_END || rc == Z_BUF_ERROR,
                   "[{}] the gzip data is damaged: {}", path, stream.msg ? stream.msg : "unknown");
      if (rc == Z_STREAM_END) next_member(file);
    }
    const size_t n = capacity - stream.avail_out;
    total_out += n;
    KEEL_REQUIRE(total_out <= kAlwaysAllowedBytes || total_out / kMaxInflation <= total_in,
                 "[{}] the gzip data inflates more than {} times; try an unpacked file", path,
                 kMaxInflation);
    return n;
  }

 private:
  // gzip files may be joined with cat: the next member follows directly.
  void next_member(std::FILE* file) {
    if (stream.avail_in == 0) {
      stream.avail_in = static_cast<unsigned>(std::fread(input.data(), 1, input.size(), file));
      stream.next_in = input.data();
      total_in += stream.avail_in;
    }
    done = stream.avail_in == 0;
    if (!done) inflateReset(&stream);
  }
};

ByteSource::ByteSource(const std::string& path, bool gzip)
    : path_(path), file_(std::fopen(path.c_str(), "rb")), buffer_(kBufferBytes) {
  KEEL_REQUIRE(file_ != nullptr, "[{}] cannot be opened: {}", path, std::strerror(errno));
  if (gzip) inflater_ = std::make_unique<Inflater>();
}

ByteSource::~ByteSource() {
  if (file_) std::fclose(file_);
}

bool ByteSource::fill() {
  position_ = 0;
  size_ = inflater_ ? inflater_->read(file_, path_, buffer_.data(), buffer_.size())
                    : std::fread(buffer_.data(), 1, buffer_.size(), file_);
  KEEL_REQUIRE(size_ > 0 || !std::ferror(file_), "[{}] cannot be read: {}", path_,
               std::strerror(errno));
  return size_ > 0;
}

}  // namespace keel
