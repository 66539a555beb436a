#include "keel/base/env.h"

#include <cstdlib>

namespace keel {

std::optional<std::string> env(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace keel
