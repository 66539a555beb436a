#include "keel/tokenizer/pipeline/unicode.h"

#include <utf8proc.h>

#include <cstring>

#include "keel/tokenizer/pipeline/regex.h"

namespace keel::unicode {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Step {
  size_t num_bytes;  // of a good sequence, or of the maximal malformed part
  bool good;
  bool cut;  // malformed only because the text ends
};

Step step(const unsigned char* p, size_t left) {
  const unsigned char lead = p[0];
  if (lead < 0x80) return {1, true, false};
  size_t need = 0;
  unsigned char low = 0x80, high = 0xBF;  // bounds of the second byte (Unicode table 3-7)
  if (lead >= 0xC2 && lead <= 0xDF) {
    need = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    need = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    need = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {1, false, false};
  }
  for (size_t i = 1; i < need; ++i) {
    if (i == left) return {i, false, true};
    if (p[i] < low || p[i] > high) return {i, false, false};
    low = 0x80;
    high = 0xBF;
  }
  return {need, true, false};
}

// Bytes of the leading part that is well-formed.
size_t valid_prefix(std::string_view text) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  size_t i = 0;
  while (i < text.size()) {
    uint64_t word;
    if (i + 8 <= text.size() && (std::memcpy(&word, p + i, 8), !(word & 0x8080808080808080ull))) {
      i += 8;
      continue;
    }
    const Step s = step(p + i, text.size() - i);
    if (!s.good) break;
    i += s.num_bytes;
  }
  return i;
}

// Whether c, decomposed, begins with something that can join a code point before it.
bool joins_previous(char32_t c) {
  if ((c >= 0x1161 && c <= 0x1175) || (c >= 0x11A8 && c <= 0x11C2)) return true;  // Hangul vowels
  utf8proc_int32_t parts[32];
  int boundary = 0;
  const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, 32,
                                         UTF8PROC_DECOMPOSE, &boundary);
  const auto* first = utf8proc_get_property(n > 0 ? parts[0] : static_cast<utf8proc_int32_t>(c));
  // Indices from 0x8000 up mark second members of a composition.
  return first->combining_class != 0 ||
         (first->comb_index >= 0x8000 && first->comb_index != UINT16_MAX);
}

bool composes_to_itself(char32_t c) {
  utf8proc_int32_t parts[32];
  int boundary = 0;
  auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, 32, UTF8PROC_DECOMPOSE,
                                   &boundary);
  if (n == 1) return parts[0] == static_cast<utf8proc_int32_t>(c);
  n = utf8proc_normalize_utf32(parts, n,
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  return n == 1 && parts[0] == static_cast<utf8proc_int32_t>(c);
}

void mark(std::vector<uint8_t>& table, const std::string& all, const char* pattern, uint8_t bit) {
  const Regex regex(pattern, "character classes");
  Regex::Matcher matcher(regex);
  for (size_t at = 0;;) {
    const auto match = matcher.find(all, at);
    if (!match) return;
    for (size_t i = match->begin; i < match->end;) {
      const CodePoint c = decode(all.data() + i);
      table[c.value] |= bit;
      i += c.num_bytes;
    }
    at = match->end;
  }
}

std::vector<uint8_t> make_table() {
  std::vector<uint8_t> table(kTableSize, 0);
  std::string all;
  for (char32_t c = 0; c < kTableSize; ++c) {
    if (c < 0xD800 || c > 0xDFFF) append(all, c);
    if (c < 0x300 || (!joins_previous(c) && composes_to_itself(c))) table[c] |= kStable;
  }
  mark(table, all, "\\p{L}+", kLetter);
  mark(table, all, "\\p{N}+", kNumber);
  mark(table, all, "\\s+", kSpace);
  return table;
}

}  // namespace

const uint8_t* class_table() {
  static const std::vector<uint8_t> table = make_table();
  return table.data();
}

void append(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

std::vector<char32_t> to_code_points(std::string_view valid_text) {
  std::vector<char32_t> out;
  out.reserve(valid_text.size());
  for (size_t i = 0; i < valid_text.size();) {
    const CodePoint c = decode(valid_text.data() + i);
    out.push_back(c.value);
    i += c.num_bytes;
  }
  return out;
}

size_t count_code_points(std::string_view valid_text) {
  size_t n = 0;
  for (const char c : valid_text) n += !is_continuation(c);
  return n;
}

bool is_valid(std::string_view text) { return valid_prefix(text) == text.size(); }

size_t append_lossy(std::string& out, std::string_view text, bool final) {
  size_t done = 0;
  while (done < text.size()) {
    const size_t good = valid_prefix(text.substr(done));
    out.append(text, done, good);
    done += good;
    if (done == text.size()) break;
    const Step s =
        step(reinterpret_cast<const unsigned char*>(text.data()) + done, text.size() - done);
    if (s.cut && !final) break;
    out += kReplacement;
    done += s.num_bytes;
  }
  return done;
}

std::string to_valid(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  append_lossy(out, text, true);
  return out;
}

}  // namespace keel::unicode
