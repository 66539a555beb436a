// Where the checks of one row put what they find; and readers for the values that all schemas
// share.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "keel/base/json.h"
#include "keel/data/dataset.h"
#include "keel/data/finding.h"

namespace keel {

class RowReport {
 public:
  RowReport(FindingLog& log, const std::string& file, int64_t row, int64_t line,
            const std::set<std::string>* columns)
      : log_(log), file_(file), row_(row), line_(line), columns_(columns) {}

  void error(const char* kind, const std::string& field, const std::string& message) {
    add(kind, FindingLevel::kError, field, message, "");
  }
  void warn(const char* kind, const std::string& field, const std::string& message) {
    add(kind, FindingLevel::kWarn, field, message, "");
  }
  void add(const std::string& kind, FindingLevel level, const std::string& field,
           const std::string& message, const std::string& suggest);

  // Field `key` of object `parent` (at `path`) is not there. A parquet column that no row has is
  // reported once for the file.
  void missing(const OrderedJson& parent, const std::string& path, const std::string& key);

  bool failed() const { return failed_; }
  int64_t row() const { return row_; }

 private:
  FindingLog& log_;
  const std::string& file_;
  int64_t row_, line_;
  const std::set<std::string>* columns_;
  bool failed_ = false;
};

// "a.b" from "a" and "b"; "b" if a is "".
std::string join_path(const std::string& path, const std::string& key);

// parent[key] if it is there and not null, else nullptr.
const OrderedJson* find_value(const OrderedJson& parent, const std::string& key);

// As find_value, but absence and null are errors.
const OrderedJson* require_value(const OrderedJson& parent, const std::string& path,
                                 const std::string& key, RowReport& report);

enum class Empty { kError, kWarn, kAllowed };

// A string value: reports other types, emptiness, blanks and damaged LaTeX. nullopt if unusable.
std::optional<std::string> read_text_value(const OrderedJson& value, const std::string& path,
                                           Empty empty, RowReport& report);

// A list of {role, content} messages.
std::optional<std::vector<Message>> read_messages(const OrderedJson& list, const std::string& path,
                                                  RowReport& report);

// A ShareGPT list of {from, value} turns.
std::optional<std::vector<Message>> read_sharegpt(const OrderedJson& list, const std::string& path,
                                                  RowReport& report);

// Text or messages.
std::optional<Content> read_content(const OrderedJson& value, const std::string& path, Empty empty,
                                    RowReport& report);

// Order of turns: system first, no two user turns in a row, tool results after tool calls.
void check_turns(const std::vector<Message>& messages, const std::string& path, RowReport& report);

// The rest of a prompt's rules: something must be left to answer.
void check_prompt_turns(const std::vector<Message>& messages, const std::string& path,
                        RowReport& report);

// The rest of a training conversation's rules: there is something to learn.
void check_training_turns(const std::vector<Message>& messages, const std::string& path,
                          RowReport& report);

}  // namespace keel
