// A piece of input on its way to the model: normalised bytes and, on request, where each came from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace keel {

// Code points [begin, end) of the text given to encode.
struct Span {
  uint32_t begin;
  uint32_t end;
  bool operator==(const Span&) const = default;
};

struct Text {
  std::string bytes;
  std::vector<Span> spans;  // one a byte; empty unless `tracked`
  bool tracked = false;
  bool at_start = false;  // begins where the input begins

  Span span(size_t byte) const { return tracked ? spans[byte] : Span{0, 0}; }
};

// Builds a changed copy of a Text.
class TextBuilder {
 public:
  explicit TextBuilder(const Text& from) : from_(from) {
    to_.tracked = from.tracked;
    to_.at_start = from.at_start;
    to_.bytes.reserve(from.bytes.size() + 16);
  }

  void keep(size_t begin, size_t end) {
    to_.bytes.append(from_.bytes, begin, end - begin);
    if (to_.tracked) {
      to_.spans.insert(to_.spans.end(), from_.spans.begin() + static_cast<std::ptrdiff_t>(begin),
                       from_.spans.begin() + static_cast<std::ptrdiff_t>(end));
    }
  }

  // New text that counts as coming from `span`.
  void insert(std::string_view text, Span span) {
    to_.bytes.append(text);
    if (to_.tracked) to_.spans.insert(to_.spans.end(), text.size(), span);
  }

  size_t size() const { return to_.bytes.size(); }
  Text finish() { return std::move(to_); }

 private:
  const Text& from_;
  Text to_;
};

}  // namespace keel
