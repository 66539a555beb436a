// What one training step leaves behind: metric name -> value in the order of setting, and a few
// histograms. Names are verl's where verl has one; keel/observe/metric_names.h lists them with
// help.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/observe/stats.h"

namespace keel {

class StepRecord {
 public:
  StepRecord() = default;
  explicit StepRecord(int64_t step) : step_(step) {}

  int64_t step() const { return step_; }

  // A name that is already there keeps its place and gets the new value.
  void set(std::string_view name, double value);
  std::optional<double> get(std::string_view name) const;
  const std::vector<std::pair<std::string, double>>& metrics() const { return metrics_; }

  void set_histogram(std::string_view name, Histogram histogram);
  const Histogram* histogram(std::string_view name) const;  // nullptr if absent
  const std::vector<std::pair<std::string, Histogram>>& histograms() const { return histograms_; }

  // <prefix>/mean, <prefix>/max, <prefix>/min; nothing for no values.
  void set_mean_max_min(const std::string& prefix, std::span<const double> values);

  // <prefix>/mean, /max, /min, /p10, /p50, /p90 and the histogram <prefix>; nothing for no values.
  void set_lengths(const std::string& prefix, std::span<const double> lengths_tokens);

  // Values of `other` are added to or replace those here.
  void merge(const StepRecord& other);

 private:
  int64_t step_ = 0;
  std::vector<std::pair<std::string, double>> metrics_;
  std::vector<std::pair<std::string, Histogram>> histograms_;
};

// The metric names that begin with `prefix`, in the order of first appearance.
std::vector<std::string> metric_names_with(std::span<const StepRecord> records,
                                           std::string_view prefix);

// One line of JSON without the line break: {"step":3,"actor/lr":1e-05,...,"histograms":{...}}.
// Doubles are the shortest text that reads back to the same bits; NaN and infinities are the
// strings "NaN", "Infinity", "-Infinity" (JSON has no numbers for them; Python's float() reads
// them).
std::string to_json_line(const StepRecord& record);

// Inverse of to_json_line; nullopt if the line is not such an object (for example cut by a crash).
std::optional<StepRecord> parse_json_line(std::string_view line);

}  // namespace keel
