#include "keel/cli/case_lines.h"

#include <fstream>
#include <iostream>

#include "keel/base/error.h"

namespace keel::cli {
namespace {

OrderedJson parse(const std::string& line) {
  auto row = OrderedJson::parse(line, nullptr, false);
  KEEL_REQUIRE(!row.is_discarded(), "expected one JSON object, got {}", line.substr(0, 60));
  return row;
}

}  // namespace

int for_each_case(const std::string& path,
                  const std::function<OrderedJson(const OrderedJson&)>& run) {
  return for_each_case_rows(
      path, [&](const OrderedJson& row) { return std::vector<OrderedJson>{run(row)}; });
}

int for_each_case_rows(const std::string& path,
                       const std::function<std::vector<OrderedJson>(const OrderedJson&)>& run) {
  std::ifstream file;
  if (path != "-") {
    file.open(path);
    KEEL_REQUIRE(file.good(), "[{}] expected a file that can be read; try - for standard input",
                 path);
  }
  std::istream& in = path == "-" ? std::cin : file;
  std::string line;
  for (int64_t number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      for (const auto& out : run(parse(line))) {
        std::cout << out.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) << '\n';
      }
    } catch (const Error& e) {
      std::cout.flush();
      throw Error(e.kind(), fmt::format("[{}:{}] {}", path, number, e.what()));
    }
  }
  std::cout.flush();
  return 0;
}

}  // namespace keel::cli
