// YAML node → typed value, with what to tell the user if that is not possible. Private to base.
#pragma once

#include <optional>
#include <string>

#include "keel/base/config_fields.h"
#include "keel/base/yaml.h"

namespace keel::config_internal {

struct Fault {
  std::string kind, expected, got, hint, suggest;
  int item = -1;  // index in a list, -1 = the whole value
};

// Sets `out`, or says why not. Checks type, choices and range.
std::optional<Fault> convert(const ConfigField& field, const YamlNode& node, ConfigValue& out);

// "the word many", "a list", "nothing", for messages.
std::string describe(const YamlNode& node);

}  // namespace keel::config_internal
