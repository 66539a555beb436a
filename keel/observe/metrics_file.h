// A run's metrics.jsonl: one to_json_line object a step, in the order of the steps.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "keel/observe/step_record.h"

namespace keel {

// One writer a file. Not thread-safe. Errors (disk full, read-only): keel::Error kResource.
class MetricsFile {
 public:
  // Starts an empty file, or with `resume_step` keeps the lines of steps <= resume_step byte for
  // byte and drops the rest, also a last line that a crash cut; the change is atomic.
  explicit MetricsFile(const std::string& path, std::optional<int64_t> resume_step = std::nullopt);

  // Writes the line with one system call before returning: a killed process loses no earlier step.
  void append(const StepRecord& record);

 private:
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

struct MetricsLog {
  std::vector<StepRecord> records;  // ascending steps; lines of one step are merged
  int64_t num_bad_lines = 0;        // not JSON, or no step
};
// A missing file is an empty log: reports of a run that has not finished a step are not an error.
MetricsLog read_metrics(const std::string& path);

}  // namespace keel
