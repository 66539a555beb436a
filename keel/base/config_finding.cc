#include "keel/base/config_finding.h"

#include <algorithm>

#include "keel/base/error.h"

namespace keel {

std::string ConfigFinding::text() const {
  std::string where = source;
  if (line > 0) where += fmt::format("{}{}", where.empty() ? "line " : ":", line);
  if (!field.empty()) where += (where.empty() ? "" : " ") + field;
  std::string out = fmt::format("[{}] expected {}, got {}", where, expected, got);
  if (!hint.empty()) out += "; try " + hint;
  return out;
}

bool ConfigFindings::has_errors() const {
  return std::any_of(all_.begin(), all_.end(), [](const ConfigFinding& f) {
    return f.level == ConfigFinding::Level::kError;
  });
}

bool ConfigFindings::has_error_at(const std::string& field) const {
  return std::any_of(all_.begin(), all_.end(), [&](const ConfigFinding& f) {
    return f.level == ConfigFinding::Level::kError && !f.field.empty() &&
           (f.field == field || field.starts_with(f.field + ".") ||
            f.field.starts_with(field + "["));
  });
}

std::string ConfigFindings::text() const {
  if (all_.empty()) return "";
  std::vector<const ConfigFinding*> order;
  for (const ConfigFinding& f : all_) order.push_back(&f);
  std::stable_sort(order.begin(), order.end(), [](const ConfigFinding* a, const ConfigFinding* b) {
    if (a->level != b->level) return a->level == ConfigFinding::Level::kError;
    return a->line < b->line;
  });
  const auto errors = std::count_if(all_.begin(), all_.end(), [](const ConfigFinding& f) {
    return f.level == ConfigFinding::Level::kError;
  });
  const auto warnings = static_cast<long>(all_.size()) - errors;
  std::string out;
  if (all_.size() > 1) {
    out = fmt::format("{} error{} and {} warning{} in the configuration", errors,
                      errors == 1 ? "" : "s", warnings, warnings == 1 ? "" : "s");
  }
  constexpr size_t kMaxShown = 40;
  for (const ConfigFinding* f : order) {
    if (!out.empty()) out += "\n  ";
    if (f == order[std::min(kMaxShown, order.size() - 1)] && order.size() > kMaxShown + 1) {
      return out + fmt::format("... and {} more", order.size() - kMaxShown);
    }
    if (f->level == ConfigFinding::Level::kWarning) out += "warning: ";
    out += f->text();
  }
  return out;
}

void ConfigFindings::throw_if_errors() const {
  if (has_errors()) throw Error(ErrorKind::kInvalid, text());
}

}  // namespace keel
