#include "keel/base/config.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "keel/base/config_convert.h"
#include "keel/base/config_interpolate.h"
#include "keel/base/config_override.h"

namespace keel {
namespace {

class Binder {
 public:
  Binder(const ConfigFields& fields, const std::string& name, ConfigReport& report)
      : fields_(fields), name_(name), report_(report) {}

  void bind_root(const YamlNode& root) {
    if (root.kind != YamlNode::Kind::kMap) {
      add("wrong_type", {"", nullptr, name_, root.line}, "", "sections with keys",
          config_internal::describe(root), "\"section:\" with \"  key: value\" below it");
      return;
    }
    bind_section(root, "");
  }

  void require_given() {
    for (const ConfigField& f : fields_.fields()) {
      if (!f.required || report_.origins.contains(f.path)) continue;
      if (report_.findings.has_error_at(f.path)) continue;
      add("missing_key", {"", nullptr, name_, 0}, f.path, "a value (" + f.help + ")", "none",
          f.path + "=VALUE");
    }
  }

 private:
  void bind_section(const YamlNode& section, const std::string& prefix) {
    for (const YamlEntry& e : section.entries) {
      const std::string path = prefix + e.key;
      if (prefix.empty() && e.key.starts_with("x-")) continue;  // notes
      const bool plain = e.key.find('.') == std::string::npos;
      const ConfigField* field = plain ? fields_.find(path) : nullptr;
      if (field) {
        bind_field(*field, e);
      } else if (plain && fields_.is_section(path)) {
        bind_subsection(e, path);
      } else {
        unknown_key(e, path);
      }
    }
  }

  void bind_subsection(const YamlEntry& e, const std::string& path) {
    if (e.value->kind == YamlNode::Kind::kMap) {
      bind_section(*e.value, path + ".");
      return;
    }
    const bool empty = e.value->null;
    add("wrong_type", e, path, "a section with keys", config_internal::describe(*e.value),
        empty ? "removing the line" : "\"key: value\" lines, indented",
        empty ? ConfigFinding::Level::kWarning : ConfigFinding::Level::kError);
  }

  // For an unknown section: where the keys in it live here, at most three.
  std::string homes_of(const YamlNode& section, const std::string& path) const {
    std::vector<std::string> homes;
    std::vector<std::pair<const YamlNode*, std::string>> open = {{&section, path}};
    while (!open.empty() && homes.size() < 3) {
      const auto [node, at] = open.back();
      open.pop_back();
      for (const YamlEntry& e : node->entries) {
        const std::string inner = at + "." + e.key;
        const std::string home = e.value->entries.empty() ? fields_.suggest(inner) : "";
        if (!home.empty() && homes.size() < 3) homes.push_back(home);
        open.emplace_back(e.value.get(), inner);
      }
    }
    return homes.empty() ? "" : fmt::format("{} for its keys", fmt::join(homes, ", "));
  }

  void unknown_key(const YamlEntry& e, const std::string& path) {
    ConfigFinding f;
    f.kind = "unknown_key";
    f.field = path;
    f.source = e.source;
    f.line = e.line;
    f.expected = "a known key";
    f.got = "an unknown one";
    f.suggest = fields_.suggest(path);
    f.hint = f.suggest;
    if (f.hint.empty()) f.hint = homes_of(*e.value, path);
    if (f.hint.empty()) f.hint = "'keel config', which lists all keys";
    if (e.key.find('.') != std::string::npos) f.hint = "one section for each part of " + e.key;
    report_.findings.add(f);
  }

  void bind_field(const ConfigField& field, const YamlEntry& e) {
    if (report_.findings.has_error_at(field.path)) return;  // e.g. an unresolved reference
    const YamlNode& node = *e.value;
    const bool empty_text = node.kind == YamlNode::Kind::kScalar && node.text.empty();
    const bool empty_list = node.kind == YamlNode::Kind::kList && node.items.empty();
    if (node.kind == YamlNode::Kind::kScalar && node.text == "???") {
      add("missing_key", e, field.path, "a value (" + field.help + ")", "??? (to be given)",
          field.path + "=VALUE");
      return;
    }
    if (field.required && (node.null || empty_text || empty_list)) {
      add("missing_key", e, field.path, "a value (" + field.help + ")",
          empty_list ? "an empty list" : "an empty one", field.path + "=VALUE");
      return;
    }
    ConfigValue value;
    if (auto fault = config_internal::convert(field, node, value)) {
      add_fault(*fault, e, field);
      return;
    }
    field.set(value);
    report_.origins[field.path] = {e.source, e.line};
  }

  void add_fault(const config_internal::Fault& fault, YamlEntry e, const ConfigField& field) {
    std::string path = field.path;
    if (fault.item >= 0) {
      path += fmt::format("[{}]", fault.item);
      e.line = std::max(e.line, e.value->items[static_cast<size_t>(fault.item)]->line);
    }
    ConfigFinding f{ConfigFinding::Level::kError,
                    fault.kind,
                    path,
                    e.source,
                    e.line,
                    fault.expected,
                    fault.got,
                    fault.hint,
                    fault.suggest};
    report_.findings.add(f);
  }

  void add(const std::string& kind, const YamlEntry& e, const std::string& field,
           const std::string& expected, const std::string& got, const std::string& hint,
           ConfigFinding::Level level = ConfigFinding::Level::kError) {
    report_.findings.add({level, kind, field, e.source, e.line, expected, got, hint, ""});
  }

  const ConfigFields& fields_;
  const std::string& name_;
  ConfigReport& report_;
};

}  // namespace

ConfigInput read_config_input(const std::string& path, std::vector<std::string> overrides) {
  ConfigInput input;
  input.overrides = std::move(overrides);
  if (path.empty()) return input;
  std::error_code ec;
  KEEL_REQUIRE(std::filesystem::exists(path, ec),
               "[{}] expected a configuration file, got nothing at this path; try a file from "
               "recipes/",
               path);
  KEEL_REQUIRE(!std::filesystem::is_directory(path, ec),
               "[{}] expected a configuration file, got a folder; try a .yaml file in it", path);
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  KEEL_REQUIRE(in.good(), "[{}] expected a readable file, got an error; try its permissions", path);
  input.name = path;
  input.text = text.str();
  return input;
}

ConfigReport bind_config(const ConfigFields& fields, const ConfigInput& input) {
  ConfigReport report;
  YamlPtr root = make_map({});
  if (!input.name.empty()) root = parse_yaml(input.text, input.name, report.findings);
  if (!root) return report;
  Binder binder(fields, input.name, report);
  if (root->kind == YamlNode::Kind::kMap) {
    root = config_internal::apply_overrides(root, input.overrides, fields, report.findings);
    root = config_internal::resolve_interpolations(root, fields, report.findings);
  }
  binder.bind_root(*root);
  if (root->kind != YamlNode::Kind::kMap) return report;
  binder.require_given();
  for (const auto& hook : fields.hooks()) hook(report.origins, report.findings);
  return report;
}

}  // namespace keel
