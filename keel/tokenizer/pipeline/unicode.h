// UTF-8 walking, lossy repair and the character classes that pre-tokenizer patterns use.
// All functions are pure and may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace keel::unicode {

// Bits of classes(). Letter, number and space agree with PCRE2's \p{L}, \p{N}, \p{White_Space}.
inline constexpr uint8_t kLetter = 1;
inline constexpr uint8_t kNumber = 2;
inline constexpr uint8_t kSpace = 4;
// Text made only of such code points is in NFC, and none of them joins what stands before it.
inline constexpr uint8_t kStable = 8;

// Code points at and above this one have no letter, number or space among them.
inline constexpr char32_t kTableSize = 0x40000;

// Byte per code point below kTableSize; made on first use (a few milliseconds).
const uint8_t* class_table();

inline uint8_t classes(const uint8_t* table, char32_t c) {
  return c < kTableSize ? table[c] : kStable;
}

inline bool is_space(char32_t c) { return (classes(class_table(), c) & kSpace) != 0; }

struct CodePoint {
  char32_t value;
  uint32_t num_bytes;
};

// The code point at p. The text must be valid UTF-8.
inline CodePoint decode(const char* p) {
  const auto* u = reinterpret_cast<const unsigned char*>(p);
  if (u[0] < 0x80) return {u[0], 1};
  if (u[0] < 0xE0) return {char32_t(u[0] & 0x1F) << 6 | (u[1] & 0x3F), 2};
  if (u[0] < 0xF0) {
    return {char32_t(u[0] & 0x0F) << 12 | char32_t(u[1] & 0x3F) << 6 | (u[2] & 0x3F), 3};
  }
  return {char32_t(u[0] & 0x07) << 18 | char32_t(u[1] & 0x3F) << 12 | char32_t(u[2] & 0x3F) << 6 |
              (u[3] & 0x3F),
          4};
}

inline bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// Start of the code point that ends before `end`; 0 < end <= text.size(), valid UTF-8.
inline size_t previous(std::string_view text, size_t end) {
  do {
    --end;
  } while (end > 0 && is_continuation(text[end]));
  return end;
}

void append(std::string& out, char32_t c);
std::vector<char32_t> to_code_points(std::string_view valid_text);
size_t count_code_points(std::string_view valid_text);
bool is_valid(std::string_view text);

// Appends `text` with every malformed part (maximal subpart) as one U+FFFD, like Rust's and
// Python's lossy decoders. Unless `final`, a well-begun sequence at the end is left alone.
// Returns the bytes consumed.
size_t append_lossy(std::string& out, std::string_view text, bool final);
std::string to_valid(std::string_view text);

}  // namespace keel::unicode
