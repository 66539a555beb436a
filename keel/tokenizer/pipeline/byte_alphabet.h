// GPT-2's alphabet: one printable code point for each byte.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace keel {

// The bytes that `token` (valid UTF-8) stands for; nullopt if a code point is not in the alphabet.
std::optional<std::string> bytes_of_alphabet(std::string_view token);

// The inverse.
std::string alphabet_of_bytes(std::string_view bytes);

}  // namespace keel
