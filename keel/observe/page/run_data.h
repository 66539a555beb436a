// All that a report says about a run, read from its directory. Absent files are absent parts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "keel/observe/diagnose.h"
#include "keel/observe/step_record.h"

namespace keel::page {

struct Sample {
  std::string input, output, expected;
  double score = 0;
};

// A few rows of samples/step_N.jsonl.
struct SampleSet {
  int64_t step = 0;
  int64_t num_rows = 0;
  std::vector<Sample> best, worst;  // best: highest score first; worst: lowest first
};

struct LogLine {
  std::string text;
  int64_t count = 0;  // lines that differ only in their time are one
  bool error = false;
};

struct RunData {
  std::string name;  // the directory's
  std::vector<StepRecord> records;
  int64_t num_bad_lines = 0;  // of metrics.jsonl and the samples that were read
  std::vector<RunFinding> findings;
  std::vector<SampleSet> samples;  // first, middle and last step that has samples
  std::vector<LogLine> log;        // warnings and errors, in the order of first appearance
  std::string config;              // config.yaml as it is
};

// Throws keel::Error kInvalid if `run_dir` is not a directory.
RunData read_run(const std::string& run_dir);

}  // namespace keel::page
