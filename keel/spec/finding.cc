#include "keel/spec/finding.h"

#include <algorithm>

namespace keel {

std::string Finding::line() const {
  std::string where = file + (file.empty() || item.empty() ? "" : ": ") + item;
  if (where.empty()) where = "model folder";
  return "[" + where + "] " + message;
}

Finding finding_of(const FileError& error, const std::string& file) {
  // "[path] message" or "[path: tensor] message".
  std::string text = error.what(), item;
  const auto end = text.starts_with('[') ? text.find("] ") : std::string::npos;
  if (end != std::string::npos) {
    const auto colon = text.substr(0, end).rfind(": ");
    if (colon != std::string::npos) item = text.substr(colon + 2, end - colon - 2);
    text = text.substr(end + 2);
  }
  return {Level::kError, error.fault(), file, item, text};
}

bool has_errors(const std::vector<Finding>& findings) {
  return std::ranges::any_of(findings, [](const Finding& f) { return f.level == Level::kError; });
}

void throw_first_error(const std::vector<Finding>& findings) {
  const auto is_error = [](const Finding& f) { return f.level == Level::kError; };
  const auto first = std::ranges::find_if(findings, is_error);
  if (first == findings.end()) return;
  const auto count = std::ranges::count_if(findings, is_error);
  const std::string more = count > 1 ? fmt::format(" (and {} more)", count - 1) : "";
  throw FileError(first->kind, ErrorKind::kInvalid, first->line() + more);
}

}  // namespace keel
