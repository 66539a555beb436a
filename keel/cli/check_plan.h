// `keel check plan FILE...`: what is impossible or wasteful in runs (schema sim-runs/1).
#pragma once

#include <string>
#include <vector>

namespace keel::cli {

// Prints one line (or JSON object) a finding; returns the exit code: 0 without errors.
int check_plans(const std::vector<std::string>& files, const std::string& twin, bool json);

}  // namespace keel::cli
