// Character classes of ASCII; bytes above 127 belong to none, in any locale.
#pragma once

namespace keel::ascii {

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

}  // namespace keel::ascii
