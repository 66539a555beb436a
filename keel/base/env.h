// The only place that reads environment variables.
#pragma once

#include <optional>
#include <string>

namespace keel {

std::optional<std::string> env(const std::string& name);

}  // namespace keel
