// What an answer means: a number, a tuple or interval, a set, a matrix, an equation or words.
// Variables are given fixed rational values (one of kNumPoints sets), so two expressions are equal
// if they are at every point.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "keel/reward/math/number.h"

namespace keel::math {

inline constexpr int kNumPoints = 3;

enum class Kind { kNumber, kInfinity, kSequence, kSet, kUnion, kMatrix, kEquation, kText };

struct Value {
  Kind kind = Kind::kNumber;
  Number number;  // kNumber; kInfinity: 1 or -1
  std::vector<Value>
      items;  // of a sequence, set, union, matrix (rows as sequences), equation (two sides)
  char open = 0, close = 0;  // kSequence: ( or [, ) or ]
  std::string text;          // kText: words in lower case
  std::string unit;          // "cm" of 30 cm, "" if none
  std::string variable;      // "x" of x = 30 or x > 30
  bool percent = false;
};

// Reads LaTeX or plain text; nullopt if it is no answer that can be compared. Bounded time and
// depth; nothing is ever executed.
std::optional<Value> parse_value(std::string_view text, int point);

// True if both texts mean the same. False if either cannot be parsed.
bool same_value(std::string_view answer, std::string_view ground_truth);

}  // namespace keel::math
