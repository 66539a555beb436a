#include "keel/io/json_file.h"

#include <algorithm>
#include <string_view>

#include "keel/io/atomic_file.h"
#include "keel/io/file_error.h"
#include "keel/io/mapped_file.h"
#include "keel/io/sniff.h"

namespace keel {
namespace {

constexpr int kMaxDepth = 200;

std::string place(std::string_view text, size_t byte) {
  const auto before = text.substr(0, std::min(byte > 0 ? byte - 1 : 0, text.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const auto newline = before.rfind('\n');
  const auto column = before.size() - (newline == std::string_view::npos ? 0 : newline + 1) + 1;
  return fmt::format("line {} column {}", line, column);
}

template <class J>
J read_json(const std::string& path, uint64_t max_bytes) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  if (bytes.empty()) throw_file_error("empty_file", path, "expected JSON, got an empty file");
  if (bytes.size() > max_bytes) {
    throw_file_error("too_large", path, "expected at most {} bytes of JSON, got {}", max_bytes,
                     bytes.size());
  }
  refuse_lfs_pointer(path, bytes);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (nests_too_deep(text)) {
    throw_file_error("json_syntax", path, "expected JSON nested at most {} deep, got more",
                     kMaxDepth);
  }
  try {
    return J::parse(text);
  } catch (const typename J::parse_error& e) {
    throw_file_error("json_syntax", path, "expected valid JSON, got an error at {}",
                     place(text, e.byte));
  } catch (const typename J::exception&) {
    throw_file_error("json_syntax", path, "expected valid JSON, got a number out of range");
  }
}

}  // namespace

bool nests_too_deep(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

Json read_json_file(const std::string& path, uint64_t max_bytes) {
  return read_json<Json>(path, max_bytes);
}

OrderedJson read_ordered_json_file(const std::string& path, uint64_t max_bytes) {
  return read_json<OrderedJson>(path, max_bytes);
}

void write_json_file(const std::string& path, const OrderedJson& document) {
  std::string text;
  try {
    text = document.dump(2);
  } catch (const OrderedJson::type_error&) {
    throw_file_error("bad_text", path, "expected UTF-8 text to write, got other bytes");
  }
  write_file_atomic(path, text + "\n");
}

}  // namespace keel
