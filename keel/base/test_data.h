// Where tests find their data. Header-only and for *_test.cc files: it needs KEEL_SOURCE_DIR.
#pragma once

#include <filesystem>
#include <string>

#include "keel/base/env.h"

#ifdef KEEL_SOURCE_DIR
namespace keel::test {

// tests/golden/<name>, committed with the project.
inline std::string golden(const std::string& name) {
  std::string path(KEEL_SOURCE_DIR);  // appended in steps: GCC 12 warns wrongly about operator+
  path += "/tests/golden/";
  return path += name;
}

// <KEEL_CASES or ../shared/cases>/<name>, or "" when this machine has no such case (skip by name
// then).
inline std::string cases(const std::string& name) {
  const auto root = env("KEEL_CASES").value_or(std::string(KEEL_SOURCE_DIR) + "/../shared/cases");
  const auto path = root + "/" + name;
  return std::filesystem::exists(path) ? path : "";
}

}  // namespace keel::test
#endif
