// Command-line overrides applied to a YAML tree. Private to base.
#pragma once

#include <string>
#include <vector>

#include "keel/base/config_fields.h"
#include "keel/base/yaml.h"

namespace keel::config_internal {

// `text` without blanks and tabs at its ends.
std::string trim(const std::string& text);

// Returns the tree with all good overrides applied in order; faults go to `findings`.
YamlPtr apply_overrides(YamlPtr root, const std::vector<std::string>& overrides,
                        const ConfigFields& fields, ConfigFindings& findings);

}  // namespace keel::config_internal
