// "Did you mean": the known word that is closest to a misspelled one.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace keel {

// The candidate with the smallest edit distance (case ignored) to `word` if that is at most a
// third of the word's length, at least one edit is always allowed; else "". Ties go to the lower
// index.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace keel
