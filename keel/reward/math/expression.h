// Recursive descent over normalised text that computes while it reads: one pass, no tree.
#pragma once

#include <string>
#include <string_view>

#include "keel/reward/math/number.h"

namespace keel::math {

class ExpressionParser {
 public:
  // point: which set of values the variables have. plus: what \pm stands for.
  ExpressionParser(std::string_view text, int point, bool plus)
      : text_(text), point_(point), plus_(plus) {}

  // sum := product (('+' | '-' | \pm) product)*
  Number sum();

  // At the text's end, spaces skipped.
  bool at_end();
  // Takes `token` if it comes next; commands match as a whole.
  bool take(std::string_view token);
  bool next_is(std::string_view token);
  // A {...} group or \text{...} as raw text; throws if it is not closed.
  std::string_view raw_group();
  // A unit word such as cm, \text{cm}, apples; "" if none comes next.
  std::string unit();
  // The name if a single variable comes next and then nothing but a relation or the end; else "".
  std::string lone_variable();

  size_t position() const { return at_; }
  void set_position(size_t at) { at_ = at; }
  std::string_view text() const { return text_; }
  bool saw_plus_minus() const { return saw_plus_minus_; }
  // Inside brackets 1,234 is a list; outside it is one number.
  void set_in_list(bool in_list) { in_list_ = in_list; }
  bool in_list() const { return in_list_; }

 private:
  struct Deeper;

  Number product();
  Number implicit_product();
  Number unary();
  Number powered();
  Number postfix();
  Number primary();
  Number literal();
  std::string digits();
  mpq_class decimal_exponent();
  Number mixed_fraction(const Number& whole);
  Number command();
  Number function(std::string_view name);
  Number variable();
  Number group();                // {...}, or one character
  Number bracketed(char close);  // after '(' or '['
  Number argument();             // of a function: bracketed, or an implicit product
  bool starts_factor();
  std::string_view command_name();  // "frac" if \frac comes next
  std::string_view letter_run();    // the letters that come next
  void skip_spaces();

  std::string_view text_;
  int point_;
  bool plus_;
  size_t at_ = 0;
  int depth_ = 0;
  bool saw_plus_minus_ = false;
  bool in_trigonometry_ = false;
  bool in_list_ = false;
  bool last_was_literal_ = false;
};

}  // namespace keel::math
