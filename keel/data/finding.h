// What a data check says: one finding a problem, with the place where it is. Findings of one class
// are counted, and only the first few are kept, so a file with a fault in each of a million rows
// gives a short report in bounded memory.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace keel {

enum class FindingLevel { kWarn, kError };

struct DataFinding {
  std::string kind;  // class of the problem: json_syntax, missing_field, unknown_role, ...
  FindingLevel level = FindingLevel::kError;
  std::string file;
  int64_t line = -1;  // 1-based line of a text file; -1 = not a text file or the whole file
  int64_t row = -1;   // 0-based record number; -1 = the whole file
  std::string field;  // dotted path with [i] for list items; "" = the whole row or file
  std::string message;
  std::string suggest;   // the near name that was probably meant, or ""
  int64_t num_more = 0;  // further findings of the same file, kind and field that were not kept
};

// "train.jsonl:9: error: prompt: missing_field: ...; did you mean 'promt'? (and 195 more)".
std::string to_string(const DataFinding& f);

// All findings, errors first, at most max_lines lines, then one line with the counts.
std::string report(const std::vector<DataFinding>& findings, int max_lines);

// Collects findings; not thread-safe.
class FindingLog {
 public:
  explicit FindingLog(int max_per_class = 5) : max_per_class_(max_per_class) {}

  void add(DataFinding f);
  bool has_errors() const { return num_errors_ > 0; }
  int64_t num_errors() const { return num_errors_; }
  std::vector<DataFinding> take() { return std::move(findings_); }

 private:
  int max_per_class_;
  int64_t num_errors_ = 0;
  std::vector<DataFinding> findings_;
  struct Class {
    size_t last = 0;  // index of its newest kept finding
    int kept = 0;
    bool whole_file = false;
  };
  std::map<std::string, Class> classes_;
};

}  // namespace keel
