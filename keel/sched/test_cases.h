// Case files for this module's tests.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "keel/base/json.h"

namespace keel::sched::test {

inline std::vector<OrderedJson> read_cases(const std::string& path) {
  std::vector<OrderedJson> rows;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) rows.push_back(OrderedJson::parse(line));
  return rows;
}

}  // namespace keel::sched::test
