#include "keel/reward/math/words.h"

#include <algorithm>
#include <cctype>

namespace keel::math {
namespace {

constexpr std::string_view kFunctionNames[] = {"sqrt", "pi",     "sin",    "cos",   "tan",
                                               "log",  "ln",     "exp",    "cot",   "sec",
                                               "csc",  "arcsin", "arccos", "arctan"};
constexpr std::string_view kValueCommands[] = {"frac", "sqrt", "binom",  "pi",     "sin",   "cos",
                                               "tan",  "cot",  "sec",    "csc",    "log",   "ln",
                                               "lg",   "exp",  "arcsin", "arccos", "arctan"};
constexpr std::string_view kVariables[] = {
    "alpha",    "beta",   "gamma",  "delta", "epsilon", "varepsilon", "zeta",  "eta",   "theta",
    "vartheta", "kappa",  "lambda", "mu",    "nu",      "xi",         "rho",   "sigma", "tau",
    "phi",      "varphi", "chi",    "psi",   "omega",   "Delta",      "Omega", "ell"};

struct Unit {
  std::string_view word, canonical;
};

constexpr Unit kUnits[] = {
    {"cm", "cm"},         {"centimeter", "cm"}, {"centimetre", "cm"}, {"mm", "mm"},
    {"millimeter", "mm"}, {"km", "km"},         {"kilometer", "km"},  {"kilometre", "km"},
    {"meter", "m"},       {"metre", "m"},       {"inche", "in"},      {"inch", "in"},
    {"feet", "ft"},       {"foot", "ft"},       {"ft", "ft"},         {"kg", "kg"},
    {"kilogram", "kg"},   {"mg", "mg"},         {"gram", "g"},        {"lb", "lb"},
    {"pound", "lb"},      {"second", "s"},      {"sec", "s"},         {"minute", "min"},
    {"min", "min"},       {"hour", "h"},        {"hr", "h"},          {"day", "day"},
    {"ml", "ml"},         {"liter", "l"},       {"litre", "l"},       {"mph", "mph"},
    {"kmh", "kmh"},       {"dollar", "usd"},    {"usd", "usd"},       {"cent", "cent"},
    {"degree", "deg"},    {"deg", "deg"},       {"mile", "mile"},     {"sq", "sq"},
};

template <size_t N>
bool contains(const std::string_view (&table)[N], std::string_view name) {
  return std::find(std::begin(table), std::end(table), name) != std::end(table);
}

std::string lower_letters(std::string_view s) {
  std::string out;
  for (const char c : s) {
    if (std::isalnum(static_cast<unsigned char>(c)))
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

}  // namespace

bool is_function_name(std::string_view letters) { return contains(kFunctionNames, letters); }
bool is_variable_command(std::string_view name) { return contains(kVariables, name); }
bool is_value_command(std::string_view name) {
  return contains(kValueCommands, name) || contains(kVariables, name);
}

bool is_word(std::string_view letters) {
  if (is_function_name(letters)) return false;
  constexpr size_t kLongestProduct = 3;
  return letters.size() > kLongestProduct ||
         std::any_of(std::begin(kUnits), std::end(kUnits),
                     [&](const Unit& u) { return u.word == letters; });
}

std::string canonical_unit(std::string_view unit) {
  auto s = lower_letters(unit);
  if (s.size() > 3 && s.back() == 's') s.pop_back();
  for (const auto& u : kUnits) {
    if (u.word == s) return std::string(u.canonical);
  }
  return s;
}

}  // namespace keel::math
