// Rules that compare one number, exactly and as text of any length.
#include <cctype>

#include "keel/reward/ascii.h"
#include "keel/reward/extract.h"
#include "keel/reward/rule_functions.h"

namespace keel::rule {
namespace {

using ascii::is_digit;

double same_number(std::string_view a, std::string_view b) {
  const auto x = canonical_decimal(a), y = canonical_decimal(b);
  return x && y && *x == *y ? 1 : 0;
}

bool in_number(char c) { return is_digit(c) || c == '.' || c == ','; }

}  // namespace

double gsm8k_strict(std::string_view answer, std::string_view ground_truth, const RuleOptions&) {
  constexpr size_t kTail = 300;
  constexpr std::string_view kMarker = "#### ";
  const auto tail = last_characters(answer, kTail);
  for (size_t at = tail.rfind(kMarker); at != tail.npos;
       at = at == 0 ? tail.npos : tail.rfind(kMarker, at - 1)) {
    size_t begin = at + kMarker.size();
    if (tail.substr(begin, 1) == "$") ++begin;
    size_t end = begin + (tail.substr(begin, 1) == "-" ? 1 : 0);
    const size_t digits = end;
    while (end < tail.size() && in_number(tail[end])) ++end;
    if (end > digits) return same_number(tail.substr(begin, end - begin), ground_truth);
  }
  return 0;
}

double gsm8k_flexible(std::string_view answer, std::string_view ground_truth, const RuleOptions&) {
  for (size_t end = answer.size(); end > 0;) {
    if (!in_number(answer[end - 1])) {
      --end;
      continue;
    }
    size_t begin = end;
    bool digit = false;
    while (begin > 0 && in_number(answer[begin - 1])) digit |= is_digit(answer[--begin]);
    if (digit) {
      if (begin > 0 && answer[begin - 1] == '-') --begin;
      auto number = answer.substr(begin, end - begin);
      while (number.ends_with('.') || number.ends_with(',')) number.remove_suffix(1);
      return same_number(number, ground_truth);
    }
    end = begin;
  }
  return 0;
}

double last_number(std::string_view answer, std::string_view ground_truth, const RuleOptions&) {
  size_t end = answer.size();
  while (end > 0 && !is_digit(answer[end - 1])) --end;
  if (end == 0) return 0;
  const auto digits_before = [&](size_t i) {
    while (i > 0 && is_digit(answer[i - 1])) --i;
    return i;
  };
  size_t begin = digits_before(end);
  if (begin > 1 && answer[begin - 1] == '.' && is_digit(answer[begin - 2]))
    begin = digits_before(begin - 1);
  // 1,234: groups of three behind each comma
  const size_t dot = std::min(answer.find('.', begin), end);
  while (begin > 1 && answer[begin - 1] == ',' && is_digit(answer[begin - 2]) && dot - begin >= 3 &&
         (dot - begin) % 4 == 3) {
    begin = digits_before(begin - 1);
  }
  const bool sign = begin > 0 && answer[begin - 1] == '-' &&
                    (begin == 1 || !std::isalnum(static_cast<unsigned char>(answer[begin - 2])));
  if (sign) --begin;
  return same_number(answer.substr(begin, end - begin), ground_truth);
}

}  // namespace keel::rule
