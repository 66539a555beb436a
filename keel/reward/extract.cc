#include "keel/reward/extract.h"
#include "keel/reward/ascii.h"

#include <algorithm>
#include <cctype>

namespace keel {
namespace {

using ascii::is_digit;
using ascii::is_letter;

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

bool escaped(std::string_view s, size_t i) {
  size_t slashes = 0;
  while (slashes < i && s[i - 1 - slashes] == '\\') ++slashes;
  return slashes % 2 == 1;
}

// Position of the last unescaped '$' before `end`, or npos.
size_t last_dollar(std::string_view s, size_t end) {
  while (end > 0) {
    const size_t p = s.rfind('$', end - 1);
    if (p == s.npos || !escaped(s, p)) return p;
    end = p;
  }
  return s.npos;
}

}  // namespace

std::string_view last_characters(std::string_view text, size_t n) {
  size_t at = text.size();
  while (at > 0 && n > 0) {
    --at;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    --n;
  }
  return text.substr(at);
}

std::optional<std::string_view> last_boxed(std::string_view text) {
  constexpr std::string_view kBoxed = "\\boxed";
  size_t at = text.rfind(kBoxed);
  if (at == text.npos) return std::nullopt;
  at += kBoxed.size();
  const size_t word = at;
  while (at < text.size() && text[at] == ' ') ++at;
  if (at == text.size()) return std::nullopt;
  if (text[at] != '{') {  // \boxed 5
    if (at == word && is_letter(text[at])) return std::nullopt;
    size_t end = at;
    while (end < text.size() && !is_space(text[end]) && text[end] != '$') ++end;
    return text.substr(at, end - at);
  }
  const size_t begin = ++at;
  for (int64_t depth = 1; at < text.size(); ++at) {
    if (text[at] == '\\') {
      ++at;
    } else if (text[at] == '{') {
      ++depth;
    } else if (text[at] == '}' && --depth == 0) {
      return text.substr(begin, at - begin);
    }
  }
  return std::nullopt;
}

std::optional<std::string_view> last_math(std::string_view text) {
  const size_t close = last_dollar(text, text.size());
  if (close == text.npos || close == 0) return std::nullopt;
  size_t end = close;
  if (text[close - 1] == '$') end = close - 1;  // $$...$$
  const size_t open = last_dollar(text, end);
  if (open == text.npos) return std::nullopt;
  return text.substr(open + 1, end - open - 1);
}

std::string_view without_thinking(std::string_view text) {
  constexpr std::string_view kOpen = "<think>", kClose = "</think>";
  const size_t close = text.rfind(kClose), open = text.rfind(kOpen);
  if (open != text.npos && (close == text.npos || open > close)) return {};
  return close == text.npos ? text : text.substr(close + kClose.size());
}

std::string_view trim(std::string_view s) {
  while (!s.empty() && is_space(s.back())) s.remove_suffix(1);
  while (!s.empty() && is_space(s.front())) s.remove_prefix(1);
  return s;
}

std::optional<std::string> canonical_decimal(std::string_view s) {
  s = trim(s);
  if (s.ends_with('.')) s.remove_suffix(1);
  const bool negative = s.starts_with('-');
  if (negative) s.remove_prefix(1);
  std::string whole, fraction;
  bool dot = false;
  for (const char c : s) {
    if (c == '.') {
      if (dot) return std::nullopt;
      dot = true;
    } else if (is_digit(c)) {
      (dot ? fraction : whole) += c;
    } else if (c != ',') {
      return std::nullopt;
    }
  }
  if (whole.empty() && fraction.empty()) return std::nullopt;
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
  fraction.erase(fraction.find_last_not_of('0') + 1);
  if (whole.empty()) whole.push_back('0');
  const bool zero = whole == "0" && fraction.empty();
  std::string out;
  if (negative && !zero) out.push_back('-');
  out += whole;
  if (!fraction.empty()) out += '.' + fraction;
  return out;
}

}  // namespace keel
