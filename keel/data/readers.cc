#include "keel/data/readers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "keel/base/error.h"

namespace keel {
namespace {

struct Ends {
  std::string head;  // first 8 bytes
  std::string tail;  // last 9 bytes
  int64_t size = 0;
};

Ends read_ends(const std::string& path) {
  Ends e;
  std::ifstream in(path, std::ios::binary);
  e.size = static_cast<int64_t>(std::filesystem::file_size(path));
  const auto read = [&](int64_t at, int64_t n) {
    std::string s(static_cast<size_t>(std::min(n, e.size)), '\0');
    in.seekg(at);
    in.read(s.data(), static_cast<std::streamsize>(s.size()));
    return s;
  };
  e.head = read(0, 8);
  e.tail = read(std::max<int64_t>(0, e.size - 9), 9);
  return e;
}

bool named(const std::string& path, const char* extension) {
  std::string p = path;
  std::transform(p.begin(), p.end(), p.begin(), [](unsigned char c) { return std::tolower(c); });
  return p.ends_with(extension);
}

// What is wrong with a parquet file as far as its ends tell; {} if nothing.
std::pair<std::string, std::string> parquet_fault(const Ends& e) {
  const auto magic_at_end = [&](size_t skip) {
    return e.tail.size() >= 4 + skip && e.tail.compare(e.tail.size() - 4 - skip, 4, "PAR1") == 0;
  };
  if (e.head.starts_with("PARE") || e.tail.ends_with("PARE")) {
    return {"unsupported_format", "the footer is encrypted"};
  }
  if (!e.head.starts_with("PAR1")) {
    return {"not_parquet",
            "does not begin with PAR1, but has a parquet name; give the file its true name"};
  }
  if (magic_at_end(1)) return {"not_parquet", "has a byte after the last PAR1"};
  if (!magic_at_end(0) || e.size < 12) {
    return {"file_truncated", "does not end with PAR1: the file was cut; fetch it again"};
  }
  uint32_t footer_bytes = 0;  // little-endian, in front of the last magic
  std::memcpy(&footer_bytes, e.tail.data() + e.tail.size() - 8, 4);
  if (footer_bytes == 0 || static_cast<int64_t>(footer_bytes) > e.size - 12) {
    return {"not_parquet",
            fmt::format("claims a footer of {} bytes in a file of {} bytes", footer_bytes, e.size)};
  }
  return {};
}

struct Magic {
  std::string_view bytes;
  const char* kind;
  const char* message;
};

constexpr Magic kForeign[] = {
    {"\xFF\xFE", "encoding", "the text is UTF-16; convert it to UTF-8"},
    {"\xFE\xFF", "encoding", "the text is UTF-16; convert it to UTF-8"},
    {"ARROW1", "unsupported_format", "an Arrow IPC file; write it as parquet"},
    {"\x28\xB5\x2F\xFD", "unsupported_format", "zstd data; unpack it"},
    {"PK\x03\x04", "unsupported_format", "a zip file; unpack it"},
};

void read_checked(const std::string& path, const ReadLimits& limits, FindingLog& log,
                  const RecordSink& sink) {
  const auto error = [&](const std::string& kind, const std::string& message, int64_t line = -1) {
    log.add({kind, FindingLevel::kError, path, line, -1, "", message, "", 0});
  };
  std::error_code ec;
  const auto status = std::filesystem::status(path, ec);
  if (!std::filesystem::exists(status)) return error("missing_file", "there is no such file");
  if (!std::filesystem::is_regular_file(status))
    return error("not_a_file", "is not a regular file");
  const auto ends = read_ends(path);
  if (ends.size == 0) return error("empty_file", "has no bytes");
  const bool parquet_name = named(path, ".parquet");
  if (parquet_name || ends.head.starts_with("PAR1")) {
    if (!parquet_name && (named(path, ".json") || named(path, ".jsonl"))) {
      return error("wrong_format", "holds parquet data under a JSON name; rename it to .parquet");
    }
    if (const auto [kind, message] = parquet_fault(ends); !kind.empty())
      return error(kind, message);
    return read_parquet(path, log, sink);
  }
  const bool gzip = ends.head.starts_with("\x1F\x8B");
  if (gzip && !named(path, ".gz")) {
    return error("wrong_format", "holds gzip data under a plain name; rename it to .gz");
  }
  for (const auto& m : kForeign) {
    if (ends.head.starts_with(m.bytes)) {
      return error(m.kind, m.message, std::strcmp(m.kind, "encoding") == 0 ? 1 : -1);
    }
  }
  read_text(path, gzip, limits, log, sink);
}

}  // namespace

void read_records(const std::string& path, const ReadLimits& limits, FindingLog& log,
                  const RecordSink& sink) {
  try {
    read_checked(path, limits, log, sink);
  } catch (const Error& e) {
    const bool bomb = std::string_view(e.what()).find("inflates") != std::string_view::npos;
    log.add(
        {bomb ? "too_large" : "corrupt", FindingLevel::kError, path, -1, -1, "", e.what(), "", 0});
  } catch (const std::filesystem::filesystem_error& e) {
    log.add({"missing_file", FindingLevel::kError, path, -1, -1, "", e.what(), "", 0});
  }
}

}  // namespace keel
