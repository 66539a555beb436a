#include "keel/reward/math/expression.h"

#include <algorithm>
#include <cctype>
#include <numbers>

#include "keel/reward/ascii.h"
#include "keel/reward/math/words.h"

namespace keel::math {
namespace {

using ascii::is_digit;
using ascii::is_letter;

constexpr int kMaxDepth = 60;
constexpr size_t kMaxDigits = 5000;

mpq_class power_of_ten(size_t n) {
  mpz_class z;
  mpz_ui_pow_ui(z.get_mpz_t(), 10, n);
  return mpq_class(z);
}

mpq_class parse_digits(const std::string& digits) {
  if (digits.size() > kMaxDigits) throw MathError("number too long");
  return digits.empty() ? mpq_class(0) : mpq_class(mpz_class(digits, 10));
}

}  // namespace

struct ExpressionParser::Deeper {
  explicit Deeper(ExpressionParser& parser) : p(parser) {
    if (++p.depth_ > kMaxDepth) throw MathError("nested too deeply");
  }
  ~Deeper() { --p.depth_; }
  ExpressionParser& p;
};

void ExpressionParser::skip_spaces() {
  while (at_ < text_.size() && text_[at_] == ' ') ++at_;
}

bool ExpressionParser::at_end() {
  skip_spaces();
  return at_ >= text_.size();
}

bool ExpressionParser::next_is(std::string_view token) {
  skip_spaces();
  if (text_.substr(at_, token.size()) != token) return false;
  const size_t end = at_ + token.size();
  const bool command = token.size() > 1 && token[0] == '\\' && is_letter(token[1]);
  return !command || end >= text_.size() || !is_letter(text_[end]);
}

bool ExpressionParser::take(std::string_view token) {
  if (!next_is(token)) return false;
  at_ += token.size();
  return true;
}

std::string_view ExpressionParser::command_name() {
  skip_spaces();
  if (at_ + 1 >= text_.size() || text_[at_] != '\\') return {};
  size_t end = at_ + 1;
  while (end < text_.size() && is_letter(text_[end])) ++end;
  return text_.substr(at_ + 1, end - at_ - 1);
}

std::string_view ExpressionParser::letter_run() {
  skip_spaces();
  size_t end = at_;
  while (end < text_.size() && is_letter(text_[end])) ++end;
  return text_.substr(at_, end - at_);
}

std::string_view ExpressionParser::raw_group() {
  if (!take("{")) throw MathError("expected a group");
  const size_t begin = at_;
  for (int depth = 1; at_ < text_.size(); ++at_) {
    if (text_[at_] == '\\') {
      ++at_;
    } else if (text_[at_] == '{') {
      ++depth;
    } else if (text_[at_] == '}' && --depth == 0) {
      return text_.substr(begin, at_++ - begin);
    }
  }
  throw MathError("group is not closed");
}

Number ExpressionParser::sum() {
  Deeper guard(*this);
  auto total = product();
  for (;;) {
    if (take("+")) {
      total = add(total, product());
    } else if (take("-")) {
      total = subtract(total, product());
    } else if (take("\\pm")) {
      saw_plus_minus_ = true;
      const auto n = product();
      total = plus_ ? add(total, n) : subtract(total, n);
    } else {
      return total;
    }
  }
}

Number ExpressionParser::product() {
  auto total = unary();
  for (;;) {
    if (take("*") || take("\\cdot") || take("\\times")) {
      total = multiply(total, unary());
    } else if (take("/") || take("\\div")) {
      total = divide(total, unary());
    } else if (starts_factor()) {
      if (last_was_literal_ && is_digit(text_[at_])) throw MathError("two numbers side by side");
      total = multiply(total, powered());
    } else {
      return total;
    }
  }
}

Number ExpressionParser::implicit_product() {
  auto total = powered();
  while (starts_factor()) total = multiply(total, powered());
  return total;
}

Number ExpressionParser::unary() {
  Deeper guard(*this);
  if (take("+")) return unary();
  if (take("-")) return subtract(Number(), unary());
  if (take("\\pm")) {
    saw_plus_minus_ = true;
    const auto n = unary();
    return plus_ ? n : subtract(Number(), n);
  }
  return powered();
}

Number ExpressionParser::powered() {
  Deeper guard(*this);
  auto base = postfix();
  if (!take("^")) return base;
  const bool negative = take("-");
  auto exponent =
      next_is("{") || is_letter(text_[std::min(at_, text_.size() - 1)]) ? group() : postfix();
  if (negative) exponent = subtract(Number(), exponent);
  if (next_is("^")) throw MathError("double superscript");
  last_was_literal_ = false;
  return power(base, exponent);
}

Number ExpressionParser::postfix() {
  auto n = primary();
  for (;;) {
    if (take("!")) {
      n = factorial(n);
    } else if (next_is("\\degree") && in_trigonometry_) {
      take("\\degree");
      n = multiply(n, Number(Complex(std::numbers::pi_v<long double> / 180)));
    } else {
      return n;
    }
    last_was_literal_ = false;
  }
}

bool ExpressionParser::starts_factor() {
  if (at_end()) return false;
  const char c = text_[at_];
  if (is_digit(c) || c == '(' || c == '{') return true;
  if (is_letter(c)) return !is_word(letter_run());
  const auto name = command_name();
  if (name == "text" || name == "mathrm") return false;  // a unit
  return is_value_command(name);
}

Number ExpressionParser::primary() {
  Deeper guard(*this);
  if (at_end()) throw MathError("the text ends too early");
  const char c = text_[at_];
  last_was_literal_ = false;
  if (is_digit(c) || c == '.') {
    const auto n = literal();
    if (next_is("\\frac")) return mixed_fraction(n);
    last_was_literal_ = true;
    return n;
  }
  if (c == '{') return group();
  if (take("(")) return bracketed(')');
  if (take("[")) return bracketed(']');
  if (take("|")) {
    const auto n = absolute(sum());
    if (!take("|")) throw MathError("expected |");
    return n;
  }
  if (c == '\\') return command();
  if (is_letter(c)) {
    const auto run = letter_run();
    if (!is_function_name(run)) return variable();
    at_ += run.size();
    return function(run);
  }
  throw MathError("unexpected character");
}

std::string ExpressionParser::digits() {
  std::string d;
  while (at_ < text_.size() && is_digit(text_[at_])) d += text_[at_++];
  return d;
}

// 12, 1.50, 1,234,567 (outside of lists), 0.1\overline{6}, 1.2e-3
Number ExpressionParser::literal() {
  std::string whole = digits();
  const auto group_follows = [&] {
    if (at_ + 3 >= text_.size() || text_[at_] != ',') return false;
    const bool three = std::all_of(text_.begin() + static_cast<ptrdiff_t>(at_) + 1,
                                   text_.begin() + static_cast<ptrdiff_t>(at_) + 4, is_digit);
    return three && (at_ + 4 >= text_.size() || !is_digit(text_[at_ + 4]));
  };
  if (!in_list_ && !whole.empty() && whole.size() <= 3) {
    while (group_follows()) {
      ++at_;
      whole += digits();
    }
  }
  auto value = parse_digits(whole);
  if (at_ < text_.size() && text_[at_] == '.') {
    ++at_;
    const auto fraction = digits();
    value += parse_digits(fraction) / power_of_ten(fraction.size());
    if (text_.substr(at_, 10) == "\\overline{") {
      at_ += 9;
      const std::string cycle(raw_group());
      if (cycle.empty() || !std::all_of(cycle.begin(), cycle.end(), is_digit))
        throw MathError("bad cycle");
      value +=
          parse_digits(cycle) / (power_of_ten(cycle.size()) - 1) / power_of_ten(fraction.size());
    } else if (whole.empty() && fraction.empty()) {
      throw MathError("a lone dot");
    }
  }
  return Number(mpq_class(value * decimal_exponent()));
}

// The e-3 of 1.2e-3 as 1/1000; 1 if there is none.
mpq_class ExpressionParser::decimal_exponent() {
  const size_t e = at_;
  if (e + 1 >= text_.size() || (text_[e] != 'e' && text_[e] != 'E')) return 1;
  const bool negative = text_[e + 1] == '-';
  size_t begin = e + (negative || text_[e + 1] == '+' ? 2 : 1);
  size_t end = begin;
  while (end < text_.size() && is_digit(text_[end])) ++end;
  if (end == begin) return 1;
  constexpr size_t kMaxExponentDigits = 4;
  if (end - begin > kMaxExponentDigits) throw MathError("exponent too large");
  at_ = end;
  const auto scale = power_of_ten(std::stoul(std::string(text_.substr(begin, end - begin))));
  return negative ? mpq_class(1 / scale) : scale;
}

// After a whole number in front of \frac: 2\frac{1}{3} is a sum, 2\frac{x}{3} a product.
Number ExpressionParser::mixed_fraction(const Number& whole) {
  const size_t begin = at_;
  take("\\frac");
  const size_t from = at_;
  const auto top = group(), bottom = group();
  const auto source = text_.substr(from, at_ - from);
  const bool plain = std::none_of(source.begin(), source.end(), [](char c) {
    return !is_digit(c) && c != '{' && c != '}' && c != ' ';
  });
  const auto fraction = divide(top, bottom);
  last_was_literal_ = false;
  if (plain && whole.is_exact() && whole.exact().get_den() == 1 && text_[begin - 1] != '.') {
    return add(whole, fraction);
  }
  return multiply(whole, fraction);
}

Number ExpressionParser::group() {
  if (take("{")) {
    const bool was = in_list_;
    in_list_ = true;
    const auto n = sum();
    in_list_ = was;
    if (!take("}")) throw MathError("expected }");
    last_was_literal_ = false;
    return n;
  }
  if (at_end()) throw MathError("the text ends too early");
  if (is_digit(text_[at_])) return Number(mpq_class(text_[at_++] - '0'));
  if (is_letter(text_[at_])) return variable();
  return primary();
}

Number ExpressionParser::bracketed(char close) {
  const bool was = in_list_;
  in_list_ = true;
  const auto n = sum();
  in_list_ = was;
  if (!take(std::string_view(&close, 1))) throw MathError("bracket is not closed");
  last_was_literal_ = false;
  return n;
}

Number ExpressionParser::argument() {
  if (take("(")) return bracketed(')');
  return implicit_product();
}

Number ExpressionParser::variable() {
  std::string name;
  if (text_[at_] == '\\') {
    name = std::string(command_name());
    at_ += name.size() + 1;
  } else {
    name.push_back(text_[at_++]);
  }
  last_was_literal_ = false;
  if (take("_")) {
    if (next_is("{")) {
      name += '_';
      name += raw_group();
    } else if (!at_end()) {
      name += '_';
      name += text_[at_++];
    }
  }
  if (name == "e") return Number(Complex(std::numbers::e_v<long double>));
  if (name == "i") return Number(Complex(0, 1));
  uint64_t h = 0x9E3779B97F4A7C15ull * static_cast<uint64_t>(point_ + 1);
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  h ^= h >> 29;
  // Between 1 and 11 with an odd denominator: no accident hits it.
  return Number(mpq_class(static_cast<unsigned long>(1009 + h % 10007), 1009ul));
}

std::string ExpressionParser::unit() {
  skip_spaces();
  const auto name = command_name();
  std::string word;
  if (name == "text" || name == "mathrm") {
    at_ += name.size() + 1;
    word = raw_group();
  } else {
    while (is_word(letter_run())) {
      word += std::string(letter_run()) + ' ';
      at_ += letter_run().size();
    }
  }
  return word;
}

std::string ExpressionParser::lone_variable() {
  const size_t begin = at_;
  skip_spaces();
  std::string name;
  if (at_ < text_.size() && (is_letter(text_[at_]) || is_variable_command(command_name()))) {
    const size_t from = at_;
    variable();
    name = std::string(text_.substr(from, at_ - from));
    for (const auto* ending : {"=", "<", ">", "\\le", "\\ge", "\\lt", "\\gt", "\\in"}) {
      if (next_is(ending)) return name;
    }
    if (at_end()) return name;
  }
  at_ = begin;
  return "";
}

}  // namespace keel::math
