#include "keel/tokenizer/pipeline/known_split.h"

#include "keel/tokenizer/pipeline/unicode.h"

namespace keel {

const char* const kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const char* const kDigits1Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char* const kDigits3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

constexpr uint8_t kAny = unicode::kLetter | unicode::kNumber | unicode::kSpace;

bool is_newline(char c) { return c == '\n' || c == '\r'; }

class Scanner {
 public:
  Scanner(std::string_view text, size_t end)
      : table_(unicode::class_table()), text_(text.data()), end_(end) {}

  // End of the piece that begins at i < end.
  size_t gpt2(size_t i) const {
    if (const size_t e = contraction(i, false)) return e;
    const size_t next = text_[i] == ' ' ? i + 1 : i;
    if (next < end_) {
      const unicode::CodePoint c = at(next);
      const uint8_t kind = kind_of(c);
      if (kind != unicode::kSpace) return run(next + c.num_bytes, kind);
    }
    return spaces(i);
  }

  size_t digits(size_t i, int max_digits) const {
    if (const size_t e = contraction(i, true)) return e;
    const unicode::CodePoint c = at(i);
    const uint8_t kind = kind_of(c);
    const size_t next = i + c.num_bytes;
    if (kind == unicode::kLetter) return run(next, unicode::kLetter);
    if (kind == unicode::kNumber) return numbers(next, max_digits - 1);
    if (next < end_ && !is_newline(text_[i])) {
      const unicode::CodePoint d = at(next);
      const uint8_t next_kind = kind_of(d);
      if (next_kind == unicode::kLetter) return run(next + d.num_bytes, unicode::kLetter);
      if (text_[i] == ' ' && next_kind == 0) return newlines(run(next + d.num_bytes, 0));
    }
    if (kind == 0) return newlines(run(next, 0));
    const size_t all = run(next, unicode::kSpace);
    for (size_t e = all; e > i; --e) {
      if (is_newline(text_[e - 1])) return e;
    }
    return without_last(i, all);
  }

 private:
  unicode::CodePoint at(size_t i) const { return unicode::decode(text_ + i); }

  uint8_t kind_of(unicode::CodePoint c) const { return unicode::classes(table_, c.value) & kAny; }

  size_t run(size_t i, uint8_t kind) const {
    while (i < end_) {
      const auto byte = static_cast<unsigned char>(text_[i]);
      if (byte < 0x80) {
        if ((table_[byte] & kAny) != kind) break;
        ++i;
        continue;
      }
      const unicode::CodePoint c = at(i);
      if (kind_of(c) != kind) break;
      i += c.num_bytes;
    }
    return i;
  }

  size_t numbers(size_t i, int more) const {
    for (; more > 0 && i < end_; --more) {
      const unicode::CodePoint c = at(i);
      if (kind_of(c) != unicode::kNumber) break;
      i += c.num_bytes;
    }
    return i;
  }

  size_t newlines(size_t i) const {
    while (i < end_ && is_newline(text_[i])) ++i;
    return i;
  }

  size_t spaces(size_t i) const { return without_last(i, run(i, unicode::kSpace)); }

  // \s+(?!\S)|\s+ where the run of spaces is [i, all).
  size_t without_last(size_t i, size_t all) const {
    if (all == end_) return all;
    const size_t last = unicode::previous({text_, all}, all);
    return last > i ? last : all;
  }

  // 's 't 're 've 'm 'll 'd; 0 if there is none at i.
  size_t contraction(size_t i, bool ignore_case) const {
    if (text_[i] != '\'' || i + 1 >= end_) return 0;
    const auto lower = [&](size_t k) -> char {
      if (k >= end_) return 0;
      const char c = text_[k];
      return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    };
    const char a = lower(i + 1);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return i + 2;
    const char b = lower(i + 2);
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return i + 3;
    // U+017F is a lower-case form of S.
    if (ignore_case && a == '\xC5' && b == '\xBF') return i + 3;
    return 0;
  }

  const uint8_t* table_;
  const char* text_;
  size_t end_;
};

}  // namespace

std::optional<KnownSplit> known_split(const std::string& pattern) {
  if (pattern == kGpt2Pattern) return KnownSplit::kGpt2;
  if (pattern == kDigits1Pattern) return KnownSplit::kDigits1;
  if (pattern == kDigits3Pattern) return KnownSplit::kDigits3;
  return std::nullopt;
}

void split_known(KnownSplit rule, std::string_view text, Range range, std::vector<Range>& out) {
  const Scanner scanner(text, range.end);
  const auto all = [&](auto next) {
    for (size_t i = range.begin; i < range.end;) {
      const size_t e = next(i);
      out.push_back({i, e});
      i = e;
    }
  };
  switch (rule) {
    case KnownSplit::kGpt2:
      return all([&](size_t i) { return scanner.gpt2(i); });
    case KnownSplit::kDigits1:
      return all([&](size_t i) { return scanner.digits(i, 1); });
    case KnownSplit::kDigits3:
      return all([&](size_t i) { return scanner.digits(i, 3); });
  }
}

}  // namespace keel
