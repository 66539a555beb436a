// "Did you mean ...": the nearest of a set of known names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace keel {

// Insertions, deletions, replacements and swaps of neighbours that turn a into b (bytes), ignoring
// case and the difference between '-' and '_'.
int edit_distance(std::string_view a, std::string_view b);

// The nearest candidate at a distance of at most max(1, a third of the name); "" if none is near.
// Ties go to the first.
std::string nearest_name(const std::string& name, const std::vector<std::string>& candidates);

// The known dotted path that `path` most likely meant: a near name in the same section, the same
// last name in another section, a known path without its first parts, or a near full path; else "".
std::string nearest_path(const std::string& path, const std::vector<std::string>& known);

}  // namespace keel
