#include "keel/base/config_suggest.h"

#include <algorithm>
#include <cctype>
#include <numeric>

namespace keel {
namespace {

char fold(char c) {
  return c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

std::string parent_of(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

std::string leaf_of(const std::string& path) { return path.substr(path.rfind('.') + 1); }

int allowed_distance(size_t length) {
  return length < 3 ? 0 : std::max<int>(1, static_cast<int>(length) / 3);
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> before, last, row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    before = std::move(last);
    last = row;
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = fold(a[i - 1]) == fold(b[j - 1]);
      row[j] = std::min({last[j - 1] + (same ? 0 : 1), last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) && fold(a[i - 2]) == fold(b[j - 1])) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::string nearest_name(const std::string& name, const std::vector<std::string>& candidates) {
  if (name.size() > 200) return "";  // no key is that long; keeps the cost bounded
  std::string best;
  int best_distance = allowed_distance(name.size()) + 1;
  for (const std::string& candidate : candidates) {
    const int distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string nearest_path(const std::string& path, const std::vector<std::string>& known) {
  if (path.size() > 200) return "";
  const std::string parent = parent_of(path), leaf = leaf_of(path);
  std::vector<std::string> siblings, same_leaf;
  for (const std::string& k : known) {
    if (parent_of(k) == parent) siblings.push_back(leaf_of(k));
    if (leaf_of(k) == leaf && k != path) same_leaf.push_back(k);
  }
  if (const auto near = nearest_name(leaf, siblings); !near.empty()) {
    return parent.empty() ? near : parent + "." + near;
  }
  for (size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', dot + 1)) {
    const std::string tail = path.substr(dot + 1);
    if (std::find(known.begin(), known.end(), tail) != known.end()) return tail;
  }
  if (!same_leaf.empty()) {
    return *std::min_element(same_leaf.begin(), same_leaf.end(), [&](auto& a, auto& b) {
      return edit_distance(path, a) < edit_distance(path, b);
    });
  }
  return nearest_name(path, known);
}

}  // namespace keel
