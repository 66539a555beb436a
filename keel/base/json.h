// The project's JSON types. OrderedJson keeps keys in input order (files that people read,
// templates).
#pragma once

#include <nlohmann/json.hpp>

namespace keel {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

}  // namespace keel
