// Logging for people: spdlog with one format, to stderr (and to a run's log.txt once it is known).
// Data for scripts goes to stdout and never through here.
#pragma once

#include <spdlog/spdlog.h>

#include <string>

namespace keel {

// level: debug, info, warn, error. Call once at program start.
void init_log(const std::string& level);

// Also append to this file from now on.
void add_log_file(const std::string& path);

// Use spdlog::info, spdlog::warn ... directly.

}  // namespace keel
