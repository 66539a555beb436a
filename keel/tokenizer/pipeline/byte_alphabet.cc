#include "keel/tokenizer/pipeline/byte_alphabet.h"

#include <array>

#include "keel/tokenizer/pipeline/unicode.h"

namespace keel {
namespace {

struct Alphabet {
  std::array<char32_t, 256> of_byte{};
  std::array<int, 0x144> byte_of{};
};

// Printable Latin-1 stands for itself; the other bytes, in order, are U+0100 and up.
Alphabet make_alphabet() {
  Alphabet a;
  a.byte_of.fill(-1);
  char32_t next = 0x100;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
    const char32_t c = printable ? static_cast<char32_t>(b) : next++;
    a.of_byte[static_cast<size_t>(b)] = c;
    a.byte_of[c] = b;
  }
  return a;
}

const Alphabet kAlphabet = make_alphabet();

}  // namespace

std::optional<std::string> bytes_of_alphabet(std::string_view token) {
  std::string out;
  for (size_t i = 0; i < token.size();) {
    const unicode::CodePoint c = unicode::decode(token.data() + i);
    if (c.value >= kAlphabet.byte_of.size() || kAlphabet.byte_of[c.value] < 0) return std::nullopt;
    out += static_cast<char>(kAlphabet.byte_of[c.value]);
    i += c.num_bytes;
  }
  return out;
}

std::string alphabet_of_bytes(std::string_view bytes) {
  std::string out;
  for (const char b : bytes) unicode::append(out, kAlphabet.of_byte[static_cast<uint8_t>(b)]);
  return out;
}

}  // namespace keel
