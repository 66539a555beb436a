// Spelling of answers: what LaTeX or Unicode write in several ways is brought into one.
#pragma once

#include <string>
#include <string_view>

namespace keel::math {

// Spacing, \left, \right, font commands and dollar signs are gone, Unicode operators and full-width
// digits are ASCII or LaTeX. Throws MathError if a character stays that has no place in an answer
// (control characters, invisible characters, superscripts).
std::string normalize(std::string_view text);

// Words only: in lower case, with single spaces, no punctuation at the ends; "" if there is a
// digit, an operator or a LaTeX command in it.
std::string as_words(std::string_view text);

}  // namespace keel::math
