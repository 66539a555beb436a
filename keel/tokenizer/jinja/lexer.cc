#include "keel/tokenizer/jinja/lexer.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "keel/base/error.h"
#include "keel/tokenizer/pipeline/unicode.h"

namespace keel::jinja {
namespace {

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f';
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

// "\r\n" and "\r" become "\n"; one at the end is dropped.
std::string normalize_newlines(const std::string& source) {
  std::string out;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(const std::string& source, const std::string& where)
      : source_(normalize_newlines(source)), where_(where) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) text();
    push(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw_invalid("[{}:{}] {}", where_, line_, message);
  }

  void push(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  bool looking_at(std::string_view s) const { return source_.compare(at_, s.size(), s) == 0; }

  void advance(size_t n) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                         source_.begin() + static_cast<ptrdiff_t>(at_ + n), '\n'));
    at_ += n;
  }

  // The next "{{", "{%" or "{#".
  size_t find_tag() const {
    for (size_t i = at_; i + 1 < source_.size(); ++i) {
      if (source_[i] == '{' &&
          (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#')) {
        return i;
      }
    }
    return source_.size();
  }

  // Text up to a tag at `tag`, less what the tag's sign and lstrip_blocks take away.
  std::string_view text_before(size_t tag, bool is_block, char sign) const {
    std::string_view text = std::string_view(source_).substr(at_, tag - at_);
    if (sign == '-') {
      while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
      return text;
    }
    if (!is_block || sign == '+') return text;
    // Only white space between the line's start and the tag?
    size_t keep = text.size();
    while (keep > 0 && is_blank(text[keep - 1]) && text[keep - 1] != '\n') --keep;
    const bool line_start = keep > 0 ? text[keep - 1] == '\n' : line_starting_;
    return line_start ? text.substr(0, keep) : text;
  }

  void text() {
    const size_t tag = find_tag();
    if (tag == source_.size()) {
      push(TokenKind::kText, source_.substr(at_));
      return advance(source_.size() - at_);
    }
    const char kind = source_[tag + 1];
    const char next = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const char sign = next == '-' || (next == '+' && kind != '{') ? next : '\0';
    const std::string_view text = text_before(tag, kind != '{', sign);
    if (!text.empty()) push(TokenKind::kText, std::string(text));
    advance(tag - at_ + 2 + (sign ? 1 : 0));
    line_starting_ = false;
    if (kind == '#') return comment();
    if (kind == '%' && raw()) return;
    push(kind == '%' ? TokenKind::kBlockBegin : TokenKind::kVariableBegin, "");
    inside(kind == '%');
  }

  // After the end of a tag: drops the newline (trim_blocks) or all white space.
  void after_tag(bool is_block, char sign) {
    line_starting_ = false;
    if (sign == '-') {
      size_t n = 0;
      while (at_ + n < source_.size() && is_blank(source_[at_ + n])) ++n;
      line_starting_ = n > 0 && source_[at_ + n - 1] == '\n';
      advance(n);
    } else if (is_block && sign != '+' && looking_at("\n")) {
      advance(1);
      line_starting_ = true;
    }
  }

  void comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos)
      fail("expected the end of a comment, got the end of the template");
    const char sign =
        end > at_ && (source_[end - 1] == '-' || source_[end - 1] == '+') ? source_[end - 1] : '\0';
    advance(end + 2 - at_);
    after_tag(true, sign);
  }

  // Matches "[-+]? name [-+]? %}" from `from`; returns where it ends and its last sign.
  struct Tag {
    size_t end;
    char sign;
  };
  std::optional<Tag> match_tag(size_t from, std::string_view name) const {
    const auto skip = [&](size_t i) {
      while (i < source_.size() && is_blank(source_[i])) ++i;
      return i;
    };
    size_t i = skip(from);
    if (source_.compare(i, name.size(), name) != 0) return std::nullopt;
    i = skip(i + name.size());
    char sign = '\0';
    if (i < source_.size() && (source_[i] == '-' || source_[i] == '+')) sign = source_[i++];
    if (source_.compare(i, 2, "%}") != 0) return std::nullopt;
    return Tag{i + 2, sign};
  }

  // {% raw %} ... {% endraw %}, just after "{%".
  bool raw() {
    const auto open = match_tag(at_, "raw");
    if (!open) return false;
    advance(open->end - at_);
    after_tag(true, open->sign);
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 2)) {
      const char next = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      const char sign = next == '-' || next == '+' ? next : '\0';
      const auto close = match_tag(tag + 2 + (sign ? 1 : 0), "endraw");
      if (!close) continue;
      push(TokenKind::kText, std::string(text_before(tag, true, sign)));
      advance(close->end - at_);
      after_tag(true, close->sign);
      return true;
    }
    fail("expected {% endraw %}, got the end of the template");
  }

  void inside(bool is_block) {
    const std::string_view close = is_block ? "%}" : "}}";
    std::string brackets;
    for (;;) {
      while (at_ < source_.size() && is_blank(source_[at_])) advance(1);
      if (at_ >= source_.size()) fail("expected the end of a tag, got the end of the template");
      const char c = source_[at_];
      if (brackets.empty()) {
        const bool signed_end =
            (c == '-' || (c == '+' && is_block)) && source_.compare(at_ + 1, 2, close) == 0;
        if (signed_end || looking_at(close)) {
          push(is_block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, "");
          advance(signed_end ? 3 : 2);
          return after_tag(is_block, signed_end ? c : '\0');
        }
      }
      if (is_digit(c)) {
        number();
      } else if (is_name_start(c)) {
        name();
      } else if (c == '\'' || c == '"') {
        string(c);
      } else {
        operation(brackets);
      }
    }
  }

  void number() {
    size_t i = at_;
    const auto digits = [&] {
      while (i < source_.size() && (is_digit(source_[i]) || source_[i] == '_')) ++i;
    };
    digits();
    bool is_float = false;
    if (i + 1 < source_.size() && source_[i] == '.' && is_digit(source_[i + 1])) {
      is_float = true;
      ++i;
      digits();
    }
    if (i < source_.size() && (source_[i] == 'e' || source_[i] == 'E')) {
      size_t k = i + 1;
      if (k < source_.size() && (source_[k] == '+' || source_[k] == '-')) ++k;
      if (k < source_.size() && is_digit(source_[k])) {
        is_float = true;
        i = k;
        digits();
      }
    }
    std::string text = source_.substr(at_, i - at_);
    std::erase(text, '_');
    push(is_float ? TokenKind::kFloat : TokenKind::kInteger, text);
    advance(i - at_);
  }

  void name() {
    size_t i = at_;
    while (i < source_.size() && (is_name_start(source_[i]) || is_digit(source_[i]))) ++i;
    push(TokenKind::kName, source_.substr(at_, i - at_));
    advance(i - at_);
  }

  // \xNN, \uNNNN, \UNNNNNNNN; i stands at the first digit and moves past the last.
  char32_t hex_escape(size_t& i, size_t digits) const {
    char32_t value = 0;
    for (size_t n = 0; n < digits; ++n, ++i) {
      const auto digit = i < source_.size()
                             ? std::string_view("0123456789abcdefABCDEF").find(source_[i])
                             : std::string_view::npos;
      if (digit == std::string_view::npos) fail("expected hexadecimal digits in a string escape");
      value = value << 4 | static_cast<char32_t>(digit < 16 ? digit : digit - 6);
    }
    return value <= 0x10FFFF && (value < 0xD800 || value > 0xDFFF) ? value : 0xFFFD;
  }

  void string(char quote) {
    std::string out;
    size_t i = at_ + 1;
    for (;;) {
      if (i >= source_.size()) fail("expected the end of a string, got the end of the template");
      const char c = source_[i++];
      if (c == quote) break;
      if (c != '\\' || i >= source_.size()) {
        out += c;
        continue;
      }
      const char e = source_[i++];
      static constexpr std::string_view kFrom = "abfnrtv\\'\"", kTo = "\a\b\f\n\r\t\v\\'\"";
      if (const size_t k = kFrom.find(e); k != std::string_view::npos) {
        out += kTo[k];
      } else if (e == 'x' || e == 'u' || e == 'U') {
        unicode::append(out, hex_escape(i, e == 'x' ? 2 : e == 'u' ? 4 : 8));
      } else if (e >= '0' && e <= '7') {
        char32_t value = static_cast<char32_t>(e - '0');
        for (int n = 0; n < 2 && i < source_.size() && source_[i] >= '0' && source_[i] <= '7';
             ++n) {
          value = value * 8 + static_cast<char32_t>(source_[i++] - '0');
        }
        unicode::append(out, value);
      } else if (e != '\n') {  // an escaped newline is nothing
        out += '\\';
        out += e;
      }
    }
    push(TokenKind::kString, std::move(out));
    advance(i - at_);
  }

  void operation(std::string& brackets) {
    static constexpr std::string_view kTwo[] = {"**", "//", "==", "!=", "<=", ">="};
    for (const std::string_view two : kTwo) {
      if (!looking_at(two)) continue;
      push(TokenKind::kOperator, std::string(two));
      return advance(2);
    }
    const char c = source_[at_];
    if (std::string_view("+-*/%~<>=.:|,;()[]{}").find(c) == std::string_view::npos) {
      fail(fmt::format("expected an expression, got '{}'", c));
    }
    if (c == '(' || c == '[' || c == '{') {
      brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (brackets.empty() || brackets.back() != c) fail(fmt::format("unexpected '{}'", c));
      brackets.pop_back();
    }
    push(TokenKind::kOperator, std::string(1, c));
    advance(1);
  }

  const std::string source_;
  const std::string& where_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the text at at_ begins a line
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(const std::string& source, const std::string& where) {
  return Lexer(unicode::to_valid(source), where).run();
}

}  // namespace keel::jinja
