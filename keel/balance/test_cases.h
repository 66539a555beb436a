// For the tests of this module: case files and random lengths. Needs KEEL_SOURCE_DIR, as
// test_data.h does.
#pragma once

#include <rapidcheck.h>

#include <fstream>
#include <string>
#include <vector>

#include "keel/base/json.h"
#include "keel/base/test_data.h"

#ifdef KEEL_SOURCE_DIR
namespace keel::balance {

inline std::vector<OrderedJson> read_lines(const std::string& path) {
  std::vector<OrderedJson> rows;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) rows.push_back(OrderedJson::parse(line));
  }
  return rows;
}

// The committed few, then all of ../shared/cases where this machine has them.
inline std::vector<OrderedJson> case_rows(const std::string& name) {
  auto rows = read_lines(test::golden("balance/" + name + ".jsonl"));
  const auto more = test::cases(name + ".jsonl");
  if (!more.empty()) rows = read_lines(more);
  return rows;
}

// Zeros, ties, giants and ordinary lengths, any number of them. More rounds than RapidCheck's 100:
// RC_PARAMS="max_success=100000".
inline rc::Gen<std::vector<int64_t>> random_lengths() {
  const auto one = rc::gen::oneOf(
      rc::gen::just<int64_t>(0), rc::gen::just<int64_t>(8000), rc::gen::inRange<int64_t>(0, 50),
      rc::gen::inRange<int64_t>(1, 40000), rc::gen::just<int64_t>(131072));
  return rc::gen::container<std::vector<int64_t>>(one);
}

}  // namespace keel::balance
#endif
