// What is wrong with an input, as data: all faults of a file are collected and shown in one report.
#pragma once

#include <string>
#include <vector>

namespace keel {

struct ConfigFinding {
  enum class Level { kWarning, kError };
  Level level = Level::kError;
  std::string kind;      // unknown_key, wrong_type, out_of_range, ... (config.h lists them)
  std::string field;     // dotted path, "" = the whole file
  std::string source;    // file name or "override", "" = neither
  int line = 0;          // 1-based, 0 = unknown
  std::string expected;  // "a whole number of at least 1"
  std::string got;       // "-1"
  std::string hint;      // what to try, "" = nothing to propose
  std::string suggest;   // the near name (key path, file or choice), "" = none

  // "[run.yaml:17 rollout.n] expected a whole number of at least 1, got -1; try 8"
  std::string text() const;
};

class ConfigFindings {
 public:
  void add(ConfigFinding finding) { all_.push_back(std::move(finding)); }
  const std::vector<ConfigFinding>& all() const { return all_; }
  bool has_errors() const;
  // An error was found for this field or for a section that holds it.
  bool has_error_at(const std::string& field) const;

  // One line if there is one finding, else a summary line and one line each (errors first).
  // "" if there is nothing to say.
  std::string text() const;

  // Throws Error(kInvalid) with text() if any finding is an error.
  void throw_if_errors() const;

 private:
  std::vector<ConfigFinding> all_;
};

}  // namespace keel
