#include "keel/base/config_fields.h"

#include <algorithm>
#include <filesystem>

#include "keel/base/config_suggest.h"

namespace keel {

ConfigField& ConfigFields::add(ConfigField field) {
  KEEL_CHECK(index_.emplace(field.path, fields_.size()).second, "two fields {}", field.path);
  fields_.push_back(std::move(field));
  return fields_.back();
}

const ConfigField* ConfigFields::find(const std::string& path) const {
  const auto it = index_.find(path);
  return it == index_.end() ? nullptr : &fields_[it->second];
}

bool ConfigFields::is_section(const std::string& path) const {
  return std::any_of(sections_.begin(), sections_.end(),
                     [&](const ConfigSection& s) { return s.path == path; });
}

std::string ConfigFields::suggest(const std::string& path) const {
  const std::string leaf = path.substr(path.rfind('.') + 1);
  std::vector<std::string> known;
  for (const ConfigField& f : fields_) {
    const auto& names = f.other_names;
    if (std::find(names.begin(), names.end(), leaf) != names.end()) return f.path;
    known.push_back(f.path);
  }
  for (const ConfigSection& s : sections_) known.push_back(s.path);
  return nearest_path(path, known);
}

std::string ConfigChecks::full(const std::string& field) const { return prefix_ + field; }

bool ConfigChecks::given(const std::string& field) const { return origins_.contains(full(field)); }

void ConfigChecks::add(ConfigFinding::Level level, const std::string& kind,
                       std::initializer_list<std::string> fields, const std::string& expected,
                       const std::string& got, const std::string& hint,
                       const std::string& suggest) {
  KEEL_CHECK(fields.size() > 0, "a finding needs a field");
  for (const std::string& f : fields) {
    if (findings_.has_error_at(full(f))) return;
  }
  ConfigFinding finding{level, kind, full(*fields.begin()), "", 0, expected, got, hint, suggest};
  if (const auto it = origins_.find(finding.field); it != origins_.end()) {
    finding.source = it->second.source;
    finding.line = it->second.line;
  }
  findings_.add(finding);
}

void ConfigChecks::error(const std::string& kind, std::initializer_list<std::string> fields,
                         const std::string& expected, const std::string& got,
                         const std::string& hint, const std::string& suggest) {
  add(ConfigFinding::Level::kError, kind, fields, expected, got, hint, suggest);
}

void ConfigChecks::warn(const std::string& kind, std::initializer_list<std::string> fields,
                        const std::string& expected, const std::string& got,
                        const std::string& hint) {
  add(ConfigFinding::Level::kWarning, kind, fields, expected, got, hint, "");
}

void ConfigChecks::require_file(const std::string& field, const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ec;
  if (!path.empty() && fs::exists(path, ec)) return;
  if (path.empty()) {
    error("missing_file", {field}, "the name of a file or folder", "an empty text");
    return;
  }
  fs::path folder = fs::path(path).parent_path();
  if (folder.empty()) folder = ".";
  std::vector<std::string> names;
  for (fs::directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());  // directory order is arbitrary
  const std::string near = nearest_name(fs::path(path).filename().string(), names);
  const std::string hint = near.empty() ? "a path from the working folder"
                                        : (fs::path(path).parent_path() / near).string();
  error("missing_file", {field}, "a file or folder that exists", path, hint, near);
}

}  // namespace keel
