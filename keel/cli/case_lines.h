// Plumbing verbs read JSON lines and write one JSON line for each.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "keel/base/json.h"

namespace keel::cli {

// path "-" = standard input. Results go to standard output in order. A row that throws Error
// becomes an Error that names file and line; nothing after it is read. Returns 0.
int for_each_case(const std::string& path,
                  const std::function<OrderedJson(const OrderedJson&)>& run);

// The same where one case gives several lines.
int for_each_case_rows(const std::string& path,
                       const std::function<std::vector<OrderedJson>(const OrderedJson&)>& run);

}  // namespace keel::cli
