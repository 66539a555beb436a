#include "keel/base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include "keel/base/error.h"

namespace keel {

void init_log(const std::string& level) {
  auto logger = spdlog::stderr_color_mt("keel");
  logger->set_pattern("%^%L%$ %H:%M:%S %v");
  const auto parsed = spdlog::level::from_str(level);
  KEEL_REQUIRE(parsed != spdlog::level::off || level == "off",
               "[log] expected debug, info, warn, error or off, got '{}'", level);
  logger->set_level(parsed);
  spdlog::set_default_logger(logger);
}

void add_log_file(const std::string& path) {
  auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
  sink->set_pattern("%L %Y-%m-%d %H:%M:%S.%e %v");
  spdlog::default_logger()->sinks().push_back(sink);
  spdlog::default_logger()->flush_on(spdlog::level::info);
}

}  // namespace keel
