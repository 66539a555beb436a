#include "keel/reward/math/normalize.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "keel/reward/ascii.h"
#include "keel/reward/math/number.h"

namespace keel::math {
namespace {

using ascii::is_digit;
using ascii::is_letter;

struct Replacement {
  std::string_view from, to;
};

// Longest first where one begins like another.
constexpr Replacement kCharacters[] = {
    {"\u2212", "-"},       {"\u2013", "-"},           {"\u00d7", "\\times "},
    {"\u00b7", "\\cdot "}, {"\u22c5", "\\cdot "},     {"\u00f7", "/"},
    {"\u03c0", "\\pi "},   {"\u221e", "\\infty "},    {"\u2264", "\\le "},
    {"\u2265", "\\ge "},   {"\u222a", "\\cup "},      {"\u00b0", "\\degree "},
    {"\u00b1", "\\pm "},   {"\u2205", "\\emptyset "}, {"\uff0c", ","},
    {"\uff08", "("},       {"\uff09", ")"},           {"\uff0d", "-"},
    {"\uff0b", "+"},       {"\uff1d", "="},           {"\uff0e", "."},
    {"\uff05", "\\%"},     {"\u3000", " "},           {"\u00a0", " "},
};

constexpr Replacement kSpellings[] = {
    {"^{\\circ}", "\\degree "},
    {"^\\circ", "\\degree "},
    {",\\!", ""},
    {"{,}", ""},
    {"\\left", ""},
    {"\\right", ""},
    {"\\!", ""},
    {"\\;", " "},
    {"\\:", " "},
    {"\\>", " "},
    {"\\ ", " "},
    {"~", " "},
    {"\\dfrac", "\\frac"},
    {"\\tfrac", "\\frac"},
    {"\\cfrac", "\\frac"},
    {"\\$", ""},
    {"\\displaystyle", ""},
    {"\\limits", ""},
    {"\\quad", " "},
    {"\\qquad", " "},
    {"\\leqslant", "\\le "},
    {"\\geqslant", "\\ge "},
    {"\\leq", "\\le "},
    {"\\geq", "\\ge "},
    {"\\mathbf", ""},
    {"\\boldsymbol", ""},
    {"\\mathit", ""},
    {"\\operatorname", "\\mathrm"},
    {"\\mbox", "\\text"},
    {"\\textbf", "\\text"},
    {"\\textit", "\\text"},
    {"\\textrm", "\\text"},
    {"\\varnothing", "\\emptyset "},
    {"\\lbrace", "\\{"},
    {"\\rbrace", "\\}"},
    {"**", "^"},
};

// True if `from`, a command, matches at s[i] and is not the beginning of a longer command.
bool matches(std::string_view s, size_t i, std::string_view from) {
  if (s.substr(i, from.size()) != from) return false;
  const size_t end = i + from.size();
  return !is_letter(from.back()) || from[0] != '\\' || end >= s.size() || !is_letter(s[end]);
}

template <size_t N>
std::string replace(std::string_view s, const Replacement (&table)[N]) {
  std::string out;
  out.reserve(s.size());
  for (size_t i = 0; i < s.size();) {
    const auto* r = std::find_if(std::begin(table), std::end(table),
                                 [&](const Replacement& x) { return matches(s, i, x.from); });
    if (r != std::end(table)) {
      out += r->to;
      i += r->from.size();
    } else if (s[i] == '\\' &&
               i + 1 < s.size()) {  // "\\\\" is a row end, not the start of a command
      out += s.substr(i, 2);
      i += 2;
    } else {
      out += s[i++];
    }
  }
  return out;
}

// U+FF10..U+FF19 -> 0..9
std::string narrow_digits(std::string_view s) {
  std::string out;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s.substr(i, 2) == "\xEF\xBC" && i + 2 < s.size()) {
      const auto c = static_cast<unsigned char>(s[i + 2]);
      if (c >= 0x90 && c <= 0x99) {
        out += static_cast<char>('0' + (c - 0x90));
        i += 2;
        continue;
      }
    }
    out += s[i];
  }
  return out;
}

// "59\,023\,454": thin spaces between digits group them; elsewhere they are spaces.
std::string drop_thin_spaces(std::string_view s) {
  std::string out;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s.substr(i, 2) != "\\,") {
      out += s[i];
      continue;
    }
    const bool digits =
        !out.empty() && is_digit(out.back()) && i + 2 < s.size() && is_digit(s[i + 2]);
    if (!digits) out += ' ';
    ++i;
  }
  return out;
}

}  // namespace

std::string normalize(std::string_view text) {
  auto s = replace(narrow_digits(text), kCharacters);
  s = replace(drop_thin_spaces(s), kSpellings);
  std::erase(s, '$');
  for (auto& c : s) {
    const auto u = static_cast<unsigned char>(c);
    if (u == '\t' || u == '\r' || u == '\n') c = ' ';
    if ((u < 0x20 && c != ' ') || u >= 0x7F)
      throw MathError("a character that is no part of an answer");
  }
  const auto begin = s.find_first_not_of(' ');
  if (begin == s.npos) return "";
  return s.substr(begin, s.find_last_not_of(' ') - begin + 1);
}

std::string as_words(std::string_view text) {
  auto s = narrow_digits(text);
  for (const auto* command : {"\\text", "\\mathrm", "\\textbf", "\\mbox"}) {  // \text{odd} -> {odd}
    for (size_t p; (p = s.find(command)) != s.npos;) s.erase(p, std::strlen(command));
  }
  std::string out;
  for (const char c : s) {
    const auto u = static_cast<unsigned char>(c);
    if (is_letter(c) || u >= 0x80) {
      out += static_cast<char>(u < 0x80 ? std::tolower(u) : u);
    } else if (std::strchr(" \t\n{}().,$'-", c) != nullptr && c != 0) {
      if (!out.empty() && out.back() != ' ') out += ' ';
    } else {
      return "";
    }
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

}  // namespace keel::math
