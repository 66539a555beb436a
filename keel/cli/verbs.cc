#include "keel/cli/verbs.h"

#include <array>

namespace keel::cli {

std::span<const Verb> verbs() {
  static constexpr auto kVerbs = std::to_array<Verb>({
      {"config", "Set-up", "show all options with help, value and origin",
       "keel config [FILE] [key=value ...]", "keel config rollout.n=16", define_config},
      {"doctor", "Set-up", "what this machine has and what will work on it", "keel doctor",
       "keel doctor", define_doctor},
  });
  return kVerbs;
}

ConfigArgs split_config_args(const std::vector<std::string>& args) {
  ConfigArgs out;
  bool value_of_dashed = false;  // "--a.b 3": its message needs both parts side by side
  for (const std::string& arg : args) {
    const bool override = arg.find('=') != std::string::npos || arg.starts_with('~') ||
                          arg.starts_with('+') || arg.starts_with('-') || value_of_dashed;
    value_of_dashed = arg.starts_with("--") && arg.find('=') == std::string::npos;
    if (override || !out.file.empty()) {
      out.overrides.push_back(arg);
    } else {
      out.file = arg;
    }
  }
  return out;
}

}  // namespace keel::cli
