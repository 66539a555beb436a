#include "keel/io/compressed.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "keel/io/file_error.h"
#include "keel/io/mapped_file.h"

namespace keel {
namespace {

constexpr size_t kChunkBytes = 1 << 20;

// Collects content and enforces the bound.
class Sink {
 public:
  Sink(const std::string& path, uint64_t max_bytes) : path_(path), max_bytes_(max_bytes) {}

  void append(const char* data, size_t n) {
    if (n > max_bytes_ - text_.size()) {
      throw_file_error("too_large", path_, "expected at most {} bytes of content, got more",
                       max_bytes_);
    }
    text_.append(data, n);
  }
  std::string take() { return std::move(text_); }

 private:
  const std::string& path_;
  uint64_t max_bytes_;
  std::string text_;
};

[[noreturn]] void damaged(const std::string& path, const char* what, const char* reason) {
  throw_file_error("bad_compression", path, "expected {} data, got damaged or cut data ({})", what,
                   reason);
}

std::string gunzip(const std::string& path, std::span<const std::byte> in, uint64_t max_bytes) {
  Sink sink(path, max_bytes);
  std::vector<char> out(kChunkBytes);
  z_stream z = {};
  if (inflateInit2(&z, 15 + 16) != Z_OK) throw std::bad_alloc();
  const std::unique_ptr<z_stream, void (*)(z_stream*)> guard(&z,
                                                             [](z_stream* s) { inflateEnd(s); });
  int status = Z_OK;
  while (!in.empty() || status != Z_STREAM_END) {
    if (status == Z_STREAM_END) {  // the next member, or padding after the last one
      if (in[0] == std::byte{0}) break;
      inflateReset(&z);
    }
    const size_t piece = std::min<size_t>(in.size(), std::numeric_limits<uInt>::max());
    z.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in.data()));
    z.avail_in = static_cast<uInt>(piece);
    z.next_out = reinterpret_cast<Bytef*>(out.data());
    z.avail_out = static_cast<uInt>(out.size());
    status = inflate(&z, Z_NO_FLUSH);
    const size_t produced = out.size() - z.avail_out;
    const size_t consumed = piece - z.avail_in;
    if (status != Z_OK && status != Z_STREAM_END) damaged(path, "gzip", z.msg ? z.msg : "cut");
    sink.append(out.data(), produced);
    in = in.subspan(consumed);
    if (status == Z_OK && produced == 0 && consumed == 0) damaged(path, "gzip", "cut");
  }
  return sink.take();
}

std::string unzstd(const std::string& path, std::span<const std::byte> in, uint64_t max_bytes) {
  Sink sink(path, max_bytes);
  std::vector<char> out(ZSTD_DStreamOutSize());
  const std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> ctx(ZSTD_createDCtx(), ZSTD_freeDCtx);
  if (!ctx) throw std::bad_alloc();
  ZSTD_inBuffer source = {in.data(), in.size(), 0};
  size_t status = 0;
  bool full = false;
  while (source.pos < source.size || full) {
    ZSTD_outBuffer target = {out.data(), out.size(), 0};
    status = ZSTD_decompressStream(ctx.get(), &target, &source);
    if (ZSTD_isError(status)) damaged(path, "zstd", ZSTD_getErrorName(status));
    sink.append(out.data(), target.pos);
    full = status != 0 && target.pos == target.size;  // 0: the frame is complete
  }
  if (status != 0) damaged(path, "zstd", "cut");
  return sink.take();
}

}  // namespace

Compression detect_compression(std::span<const std::byte> bytes) {
  const auto at = [&](size_t i) { return std::to_integer<unsigned>(bytes[i]); };
  if (bytes.size() >= 2 && at(0) == 0x1F && at(1) == 0x8B) return Compression::kGzip;
  if (bytes.size() >= 4 && at(0) == 0x28 && at(1) == 0xB5 && at(2) == 0x2F && at(3) == 0xFD) {
    return Compression::kZstd;
  }
  return Compression::kNone;
}

std::string read_file(const std::string& path, uint64_t max_bytes) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  switch (detect_compression(bytes)) {
    case Compression::kGzip:
      return gunzip(path, bytes, max_bytes);
    case Compression::kZstd:
      return unzstd(path, bytes, max_bytes);
    case Compression::kNone:
      break;
  }
  Sink sink(path, max_bytes);
  if (!bytes.empty()) sink.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return sink.take();
}

}  // namespace keel
