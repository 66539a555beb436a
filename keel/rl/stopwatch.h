// Seconds of a step's stages, as they stand in its record.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <string_view>

#include "keel/observe/step_record.h"

namespace keel::rl {

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Adds to timing_s/<name>: a stage may run several times in a step.
inline void add_time(StepRecord& record, std::string_view name, const Stopwatch& watch) {
  const auto key = fmt::format("timing_s/{}", name);
  record.set(key, record.get(key).value_or(0) + watch.seconds());
}

}  // namespace keel::rl
