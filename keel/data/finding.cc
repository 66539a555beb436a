#include "keel/data/finding.h"

#include <fmt/format.h>

#include <algorithm>

namespace keel {
namespace {

constexpr size_t kMaxClasses = 1000;

// messages[3].role and messages[7].role are one class.
std::string without_indices(const std::string& field) {
  std::string out;
  bool inside = false;
  for (const char c : field) {
    if (c == ']') inside = false;
    if (!inside) out += c;
    if (c == '[') inside = true;
  }
  return out;
}

}  // namespace

std::string to_string(const DataFinding& f) {
  std::string s = f.file;
  if (f.line >= 0) s += fmt::format(":{}", f.line);
  if (f.line < 0 && f.row >= 0) s += fmt::format(": row {}", f.row);
  s += f.level == FindingLevel::kError ? ": error: " : ": warning: ";
  if (!f.field.empty()) s += f.field + ": ";
  s += fmt::format("{}: {}", f.kind, f.message);
  if (!f.suggest.empty()) s += fmt::format("; did you mean '{}'?", f.suggest);
  if (f.num_more > 0) s += fmt::format(" (and {} more rows like this)", f.num_more);
  return s;
}

std::string report(const std::vector<DataFinding>& findings, int max_lines) {
  std::vector<const DataFinding*> order;
  int64_t errors = 0, warnings = 0;
  for (const auto& f : findings) {
    order.push_back(&f);
    (f.level == FindingLevel::kError ? errors : warnings) += 1 + f.num_more;
  }
  std::stable_sort(order.begin(), order.end(), [](const DataFinding* a, const DataFinding* b) {
    return a->level == FindingLevel::kError && b->level == FindingLevel::kWarn;
  });
  std::string s;
  for (int i = 0; i < std::min<int>(max_lines, static_cast<int>(order.size())); ++i) {
    s += to_string(*order[i]) + "\n";
  }
  if (static_cast<int>(order.size()) > max_lines) s += "...\n";
  return s + fmt::format("{} errors, {} warnings", errors, warnings);
}

void FindingLog::add(DataFinding f) {
  if (f.level == FindingLevel::kError) ++num_errors_;
  const bool is_error = f.level == FindingLevel::kError;
  std::string key = fmt::format("{}|{}|{}|{}", is_error, f.file, f.kind, without_indices(f.field));
  if (classes_.size() >= kMaxClasses && !classes_.contains(key)) {
    key = fmt::format("{}|{}|other", is_error, f.file);
  }
  auto& c = classes_[key];
  if (c.kept >= max_per_class_ || c.whole_file) {
    if (f.row >= 0) ++findings_[c.last].num_more;
    return;
  }
  // A statement about the whole file (a column that is not there) is said once.
  if (f.row < 0 && f.line < 0) c.whole_file = true;
  c.last = findings_.size();
  ++c.kept;
  findings_.push_back(std::move(f));
}

}  // namespace keel
