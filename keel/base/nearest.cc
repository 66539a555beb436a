#include "keel/base/nearest.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace keel {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (lower(a[i - 1]) != lower(b[j - 1]));
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  constexpr size_t kLongestWord = 64;  // longer ones are no typing errors
  if (word.empty() || word.size() > kLongestWord) return "";
  size_t best = std::max<size_t>(1, word.size() / 3) + 1;
  const std::string* found = nullptr;
  for (const auto& c : candidates) {
    if (c.size() > kLongestWord) continue;
    const size_t d = edit_distance(word, c);
    if (d < best) {
      best = d;
      found = &c;
    }
  }
  return found ? *found : "";
}

}  // namespace keel
