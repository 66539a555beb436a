// Names inside answers: which letters are words, units, functions or variables.
#pragma once

#include <string>
#include <string_view>

namespace keel::math {

// A run of letters that is no product of variables: a unit such as cm, or four letters and more.
bool is_word(std::string_view letters);

// sqrt, pi, sin ... written without a backslash.
bool is_function_name(std::string_view letters);

// \frac, \sqrt, \pi, \alpha ...: the command begins a value.
bool is_value_command(std::string_view name);

// \alpha ...
bool is_variable_command(std::string_view name);

// "Centimetres." and "cm" are the same unit.
std::string canonical_unit(std::string_view unit);

}  // namespace keel::math
