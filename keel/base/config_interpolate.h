// ${...} in a YAML tree. Private to base.
#pragma once

#include "keel/base/config_fields.h"
#include "keel/base/yaml.h"

namespace keel::config_internal {

// Returns the tree with every interpolation replaced (grammar in config.h). A reference to a key
// that the tree does not set takes the field's present value. Faults go to `findings`
// (unresolved_interpolation) and leave the text as it is.
YamlPtr resolve_interpolations(const YamlPtr& root, const ConfigFields& fields,
                               ConfigFindings& findings);

// The text escaped so that resolve_interpolations gives it back.
std::string escape_interpolation(const std::string& text);

}  // namespace keel::config_internal
