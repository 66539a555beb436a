// LaTeX commands and functions inside expressions.
#include <numbers>

#include "keel/reward/math/expression.h"
#include "keel/reward/math/words.h"

namespace keel::math {
namespace {

using Function = Complex (*)(const Complex&);

struct Named {
  std::string_view name;
  Function function;
  bool trigonometric;  // \sin 30^\circ means degrees
};

constexpr Complex one(1);

const Named kFunctions[] = {
    {"sin", [](const Complex& z) { return std::sin(z); }, true},
    {"cos", [](const Complex& z) { return std::cos(z); }, true},
    {"tan", [](const Complex& z) { return std::tan(z); }, true},
    {"cot", [](const Complex& z) { return one / std::tan(z); }, true},
    {"sec", [](const Complex& z) { return one / std::cos(z); }, true},
    {"csc", [](const Complex& z) { return one / std::sin(z); }, true},
    {"arcsin", [](const Complex& z) { return std::asin(z); }, false},
    {"arccos", [](const Complex& z) { return std::acos(z); }, false},
    {"arctan", [](const Complex& z) { return std::atan(z); }, false},
    {"exp", [](const Complex& z) { return std::exp(z); }, false},
};

Number logarithm(const Number& x) {
  if (x.is_zero()) throw MathError("logarithm of zero");
  return Number(std::log(x.approx()));
}

}  // namespace

Number ExpressionParser::command() {
  const auto name = command_name();
  if (name.empty()) throw MathError("unexpected backslash");
  if (is_variable_command(name)) return variable();
  at_ += name.size() + 1;
  if (name == "frac") {
    const auto top = group();
    return divide(top, group());
  }
  if (name == "binom") {
    const auto n = group();
    return binomial(n, group());
  }
  if (name == "text" || name == "mathrm") {  // \text{89}; words do not parse
    return group();
  }
  if (is_value_command(name)) return function(name);
  throw MathError("unknown command");
}

Number ExpressionParser::function(std::string_view name) {
  if (name == "pi") return Number(Complex(std::numbers::pi_v<long double>));
  if (name == "sqrt") {
    long degree = 2;
    if (take("[")) {
      const auto d = bracketed(']').integer(2, 1000);
      if (!d) throw MathError("root of this degree");
      degree = *d;
    }
    return root(take("(") ? bracketed(')') : next_is("{") ? group() : powered(), degree);
  }
  if (name == "log" || name == "ln" || name == "lg") {
    Number base(mpq_class(10));
    if (name == "log" && take("_")) base = group();
    const auto x = logarithm(argument());
    return name == "ln" ? x : divide(x, logarithm(base));
  }
  Number exponent(mpq_class(1));
  if (take("^")) exponent = group();
  for (const auto& f : kFunctions) {
    if (f.name != name) continue;
    const bool was = in_trigonometry_;
    in_trigonometry_ = f.trigonometric;
    const auto x = argument();
    in_trigonometry_ = was;
    return power(Number(f.function(x.approx())), exponent);
  }
  throw MathError("unknown function");
}

}  // namespace keel::math
