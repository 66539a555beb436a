#include "keel/base/config_override.h"

#include <algorithm>
#include <set>

namespace keel::config_internal {
namespace {

constexpr const char* kSource = "override";

ConfigFinding bad_override(const std::string& field, const std::string& expected,
                           const std::string& got, const std::string& hint) {
  ConfigFinding f;
  f.kind = "bad_override";
  f.field = field;
  f.source = kSource;
  f.expected = expected;
  f.got = got;
  f.hint = hint;
  return f;
}

// A copy of `node` where `path` holds `value` (null = removed).
YamlPtr with_value(const YamlPtr& node, const std::string& path, const YamlPtr& value) {
  const size_t dot = path.find('.');
  const std::string key = path.substr(0, dot);
  std::vector<YamlEntry> entries;
  if (node && node->kind == YamlNode::Kind::kMap) entries = node->entries;
  auto it = std::find_if(entries.begin(), entries.end(), [&](auto& e) { return e.key == key; });
  if (dot != std::string::npos) {
    const YamlPtr inner = it == entries.end() ? nullptr : it->value;
    const YamlPtr changed = with_value(inner, path.substr(dot + 1), value);
    if (it == entries.end()) {
      entries.push_back({key, changed, kSource, 0});
    } else {
      it->value = changed;
    }
  } else if (!value) {
    if (it != entries.end()) entries.erase(it);
  } else if (it == entries.end()) {
    entries.push_back({key, value, kSource, 0});
  } else {
    *it = {key, value, kSource, 0};
  }
  return make_map(std::move(entries));
}

bool contains(const YamlPtr& node, const std::string& path) {
  const size_t dot = path.find('.');
  const YamlEntry* e = node ? node->find(path.substr(0, dot)) : nullptr;
  if (!e) return false;
  return dot == std::string::npos || contains(e->value, path.substr(dot + 1));
}

class Overrides {
 public:
  Overrides(const ConfigFields& fields, ConfigFindings& findings)
      : fields_(fields), findings_(findings) {}

  // Returns how many of args were used.
  size_t apply(const std::vector<std::string>& args, size_t i, YamlPtr& root) {
    std::string arg = args[i];
    if (arg.starts_with("--")) return dashed(args, i);
    if (arg.starts_with("~")) {
      remove(arg.substr(1, arg.find('=') - 1), root);
      return 1;
    }
    const size_t equals = arg.find('=');
    if (equals == std::string::npos) {
      findings_.add(bad_override(arg, "key=value", "no =", arg + "=VALUE"));
      return 1;
    }
    std::string key = arg.substr(0, equals), value = arg.substr(equals + 1);
    if (trim(key) != key || (trim(value) != value)) {
      findings_.add(
          bad_override(trim(key), "key=value", "spaces around =", trim(key) + "=" + trim(value)));
      return 1;
    }
    while (key.starts_with("+")) key.erase(0, 1);
    if (check_key(key)) set(key, value, root);
    return 1;
  }

 private:
  size_t dashed(const std::vector<std::string>& args, size_t i) {
    std::string form = args[i].substr(2);
    size_t used = 1;
    if (form.find('=') == std::string::npos) {
      const bool has_value = i + 1 < args.size() && args[i + 1].find('=') == std::string::npos;
      form += "=" + (has_value ? args[i + 1] : "VALUE");
      used += has_value ? 1 : 0;
    }
    findings_.add(bad_override("", "key=value", args[i], form));
    return used;
  }

  bool check_key(const std::string& key) {
    for (size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.', dot + 1)) {
      const std::string head = key.substr(0, dot);
      if (!fields_.find(head)) continue;
      ConfigFinding f =
          bad_override(head, "a value", "a path below it (" + key + ")", head + "=VALUE");
      f.kind = "wrong_type";
      findings_.add(f);
      return false;
    }
    if (fields_.find(key) || fields_.is_section(key)) return true;
    ConfigFinding f = bad_override(key, "a known key", "an unknown one", "");
    f.kind = "unknown_key";
    f.suggest = fields_.suggest(key);
    f.hint = f.suggest.empty() ? "'keel config', which lists all keys" : f.suggest;
    findings_.add(f);
    return false;
  }

  void remove(const std::string& key, YamlPtr& root) {
    if (!check_key(key)) return;
    if (!contains(root, key)) {
      findings_.add(bad_override(key, "a key that the file sets", "one that it does not set",
                                 "without ~" + key));
      return;
    }
    root = with_value(root, key, nullptr);
  }

  void set(const std::string& key, const std::string& text, YamlPtr& root) {
    if (!seen_.insert(key).second) {
      ConfigFinding f = bad_override(key, "each key once", "it twice (the last one counts)", "");
      f.kind = "duplicate_key";
      f.level = ConfigFinding::Level::kWarning;
      findings_.add(f);
    }
    YamlPtr value = parse_value(key, text);
    if (!value) return;
    if (value->kind == YamlNode::Kind::kMap) {
      findings_.add(bad_override(key, "one value", "a section in { }", key + ".NAME=VALUE"));
      return;
    }
    root = with_value(root, key, value);
  }

  // Brackets and quotes are YAML; anything else is taken as it stands.
  YamlPtr parse_value(const std::string& key, const std::string& text) {
    if (text.empty()) return make_scalar("", true);
    if (std::string("[{'\"").find(text[0]) == std::string::npos) {
      if (find_invalid_utf8(text) == std::string_view::npos) return make_scalar(text, false);
      findings_.add(bad_override(key, "text in UTF-8", "other bytes", ""));
      return nullptr;
    }
    ConfigFindings inner;
    YamlPtr value = parse_yaml(text, kSource, inner);
    if (value && !inner.has_errors()) return value;
    const ConfigFinding& first = inner.all().front();
    findings_.add(
        bad_override(key, "a list in [ ] or text in quotes", first.got,
                     "quotes around the whole argument for the shell: '" + key + "=[a,b]'"));
    return nullptr;
  }

  const ConfigFields& fields_;
  ConfigFindings& findings_;
  std::set<std::string> seen_;
};

}  // namespace

std::string trim(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

YamlPtr apply_overrides(YamlPtr root, const std::vector<std::string>& args,
                        const ConfigFields& fields, ConfigFindings& findings) {
  Overrides overrides(fields, findings);
  for (size_t i = 0; i < args.size();) i += overrides.apply(args, i, root);
  return root;
}

}  // namespace keel::config_internal
