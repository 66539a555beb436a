// Finding the answer in a text. Linear time; positions count characters (code points) where a rule
// says characters.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace keel {

// The last n characters.
std::string_view last_characters(std::string_view text, size_t n);

// Content of the last \boxed{...} (or the word after "\boxed "); nullopt if there is none or it is
// not closed.
std::optional<std::string_view> last_boxed(std::string_view text);

// Content of the last $...$ or $$...$$ (escaped \$ are no delimiters).
std::optional<std::string_view> last_math(std::string_view text);

// The text after the last </think>; "" if a <think> is not closed.
std::string_view without_thinking(std::string_view text);

std::string_view trim(std::string_view s);

// "-0012.50" -> "-12.5"; commas and one final full stop are dropped. nullopt if it is no number.
std::optional<std::string> canonical_decimal(std::string_view s);

}  // namespace keel
