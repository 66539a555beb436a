// JSON lines and JSON arrays, streamed: at most one record is held.
#include <fmt/format.h>

#include <cstring>

#include "keel/data/byte_source.h"
#include "keel/data/readers.h"

namespace keel {
namespace {

bool is_space(int c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

class TextReader {
 public:
  TextReader(const std::string& path, bool gzip, const ReadLimits& limits, FindingLog& log,
             const RecordSink& sink)
      : path_(path), limits_(limits), log_(log), sink_(sink), source_(path, gzip) {}

  void run() {
    int c = next();
    if (c == 0xEF) {  // a byte order mark at the very start is legal
      std::string mark{static_cast<char>(c)};
      mark += static_cast<char>(next());
      mark += static_cast<char>(next());
      if (mark != "\xEF\xBB\xBF") held_ = mark;
      c = held_.empty() ? next() : 'x';
    }
    int64_t blanks = 0;
    while (held_.empty() && is_space(c) && ++blanks <= limits_.max_row_bytes) c = next();
    if (blanks > limits_.max_row_bytes) return too_large();
    if (c == '[' && held_.empty()) {
      read_array();
    } else {
      if (c >= 0 && held_.empty()) held_ = static_cast<char>(c);
      read_lines();
    }
    if (row_ == 0 && !stopped_) file_error("no_rows", "has no records");
  }

 private:
  int next() {
    const int c = source_.next();
    if (c == '\n') ++line_;
    return c;
  }

  void file_error(const char* kind, const std::string& message, int64_t line = -1,
                  int64_t row = -1) {
    stopped_ = true;
    log_.add({kind, FindingLevel::kError, path_, line, row, "", message, "", 0});
  }

  void too_large() {
    file_error("too_large", fmt::format("a record is longer than {} bytes", limits_.max_row_bytes),
               line_, row_);
  }

  void emit(std::string_view text, int64_t line) {
    Record record;
    record.row = row_++;
    record.line = line;
    constexpr std::string_view kMark = "\xEF\xBB\xBF";
    if (text.starts_with(kMark)) {
      text.remove_prefix(kMark.size());
      record.issues.push_back(
          {"bom", FindingLevel::kWarn, "",
           "a byte order mark inside the file (were files joined?); it was skipped"});
    }
    const size_t num_issues = record.issues.size();
    record.usable = parse_json_record(text, limits_.max_depth, record.value, record.issues);
    if (record.issues.size() > num_issues) record.line += record.issues.back().line_offset;
    sink_(std::move(record));
  }

  // Reads on to the end of the line; the text so far is in held_.
  void read_lines() {
    std::string text = std::move(held_);
    bool oversize = false, at_end = false;
    while (!at_end) {
      const int64_t line = line_;
      for (;;) {
        const auto ready = source_.ready();
        if (ready.empty()) {
          at_end = true;
          break;
        }
        const auto* end = static_cast<const char*>(std::memchr(ready.data(), '\n', ready.size()));
        const size_t n = end ? static_cast<size_t>(end - ready.data()) : ready.size();
        oversize |= static_cast<int64_t>(text.size() + n) > limits_.max_row_bytes;
        if (!oversize) text.append(ready.data(), n);
        source_.consume(end ? n + 1 : n);
        if (end) break;
      }
      finish_line(text, oversize, line);
      line_ += at_end ? 0 : 1;
      text.clear();
      oversize = false;
    }
  }

  void finish_line(std::string_view text, bool oversize, int64_t line) {
    if (oversize) {
      too_large();
      ++row_;
      return;
    }
    while (!text.empty() && is_space(static_cast<unsigned char>(text.back())))
      text.remove_suffix(1);
    while (!text.empty() && is_space(static_cast<unsigned char>(text.front())))
      text.remove_prefix(1);
    if (!text.empty()) emit(text, line);
  }

  // After '['.
  void read_array() {
    bool expect_item = true, first = true;
    for (;;) {
      int c = next();
      while (is_space(c)) c = next();
      if (c < 0) {
        return file_error("json_syntax", "the array is not closed: the file was cut", -1, row_);
      }
      if (c == ']' && (!expect_item || first)) break;
      if (c == ',' && !expect_item) {
        expect_item = true;
        continue;
      }
      if (!expect_item) {
        log_.add({"json_syntax", FindingLevel::kError, path_, line_, row_, "",
                  "a comma is missing in front of this record", "", 0});
      }
      if (!read_item(c)) return;
      expect_item = false;
      first = false;
    }
    int c = next();
    while (is_space(c)) c = next();
    if (c >= 0) file_error("trailing_data", "text after the end of the array", line_);
  }

  // One array item whose first byte is c. False if reading cannot go on.
  bool read_item(int c) {
    const int64_t line = line_;
    std::string text(1, static_cast<char>(c));
    if (c == '{' || c == '[') {
      int64_t depth = 1;
      bool in_string = false, escaped = false;
      while (depth > 0) {
        c = next();
        if (c < 0) {
          file_error("json_syntax", "the array is not closed: the file was cut", -1, row_);
          return false;
        }
        text += static_cast<char>(c);
        if (static_cast<int64_t>(text.size()) > limits_.max_row_bytes) {
          too_large();
          return false;
        }
        if (in_string) {
          in_string = escaped || c != '"';
          escaped = !escaped && c == '\\';
        } else {
          in_string = c == '"';
          depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        }
      }
      emit(text, line);
      return true;
    }
    return read_scalar(text, line);
  }

  // Anything else up to a comma or bracket outside of quotes; the parser says what is wrong with
  // it.
  bool read_scalar(std::string& text, int64_t line) {
    bool in_string = text[0] == '"', escaped = false;
    for (;;) {
      const auto ready = source_.ready();
      if (ready.empty()) {
        file_error("json_syntax", "the array is not closed: the file was cut", -1, row_);
        return false;
      }
      const char c = ready[0];
      if (!in_string && (c == ',' || c == ']' || is_space(static_cast<unsigned char>(c)))) break;
      text += static_cast<char>(next());
      if (static_cast<int64_t>(text.size()) > limits_.max_row_bytes) {
        too_large();
        return false;
      }
      if (in_string) {
        in_string = escaped || c != '"';
        escaped = !escaped && c == '\\';
      }
    }
    emit(text, line);
    return true;
  }

  const std::string& path_;
  const ReadLimits& limits_;
  FindingLog& log_;
  const RecordSink& sink_;
  ByteSource source_;
  std::string held_;  // bytes read ahead of the line reader
  int64_t line_ = 1, row_ = 0;
  bool stopped_ = false;
};

}  // namespace

void read_text(const std::string& path, bool gzip, const ReadLimits& limits, FindingLog& log,
               const RecordSink& sink) {
  TextReader(path, gzip, limits, log, sink).run();
}

}  // namespace keel
