#include "keel/base/config_interpolate.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "keel/base/config.h"
#include "keel/base/config_override.h"
#include "keel/base/env.h"

namespace keel::config_internal {
namespace {

constexpr size_t kMaxTextBytes = 64 << 10;
constexpr size_t kMaxChain = 64;

struct Unresolved {
  std::string got, hint;
};

bool may_interpolate(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::kScalar) return node.text.find("${") != std::string::npos;
  return std::any_of(node.items.begin(), node.items.end(),
                     [](auto& item) { return may_interpolate(*item); }) ||
         std::any_of(node.entries.begin(), node.entries.end(),
                     [](auto& e) { return may_interpolate(*e.value); });
}

// Position of the } that closes the ${ at `open`; npos if there is none.
size_t closing_brace(const std::string& text, size_t open) {
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}' && --depth == 0) return i;
  }
  return std::string::npos;
}

class Resolver {
 public:
  Resolver(const YamlPtr& root, const ConfigFields& fields, ConfigFindings& findings)
      : root_(root), fields_(fields), findings_(findings) {}

  YamlPtr walk(const YamlPtr& node, const std::string& path, const YamlEntry* entry) {
    if (!may_interpolate(*node)) return node;
    auto copy = std::make_shared<YamlNode>(*node);
    if (node->kind == YamlNode::Kind::kMap) {
      for (YamlEntry& e : copy->entries) {
        const YamlEntry original = e;
        e.value = walk(e.value, path.empty() ? e.key : path + "." + e.key, &original);
      }
    } else if (node->kind == YamlNode::Kind::kList) {
      for (size_t i = 0; i < node->items.size(); ++i) {
        copy->items[i] = walk(node->items[i], fmt::format("{}[{}]", path, i), entry);
      }
    } else {
      try {
        return reference(path, node);
      } catch (const Unresolved& u) {
        report(u, path, node, entry);
      }
    }
    return copy;
  }

 private:
  void report(const Unresolved& u, const std::string& path, const YamlPtr& node,
              const YamlEntry* entry) {
    ConfigFinding f;
    f.kind = "unresolved_interpolation";
    f.field = path;
    f.source = entry ? entry->source : "";
    f.line = entry ? std::max(entry->line, path.ends_with(']') ? node->line : 0) : node->line;
    f.expected = "a value for " + node->text;
    f.got = u.got;
    f.hint = u.hint;
    findings_.add(f);
  }

  // The resolved value of `node`, which lies at `path`.
  YamlPtr reference(const std::string& path, const YamlPtr& node) {
    if (!may_interpolate(*node)) return node;
    if (const auto it = done_.find(path); it != done_.end()) return it->second;
    if (active_.size() > kMaxChain || !active_.insert(path).second) {
      throw Unresolved{"references that lead back to " + path, "writing one of the values out"};
    }
    YamlPtr out = node;
    try {
      out = expand(path, *node);
    } catch (const Unresolved&) {
      active_.erase(path);
      throw;
    }
    active_.erase(path);
    done_[path] = out;
    return out;
  }

  YamlPtr expand(const std::string& path, const YamlNode& node) {
    if (node.kind == YamlNode::Kind::kMap) throw Unresolved{"a section", "naming one key"};
    if (node.kind == YamlNode::Kind::kList) {
      auto copy = std::make_shared<YamlNode>(node);
      for (size_t i = 0; i < node.items.size(); ++i) {
        copy->items[i] = reference(fmt::format("{}[{}]", path, i), node.items[i]);
      }
      return copy;
    }
    return expand_text(path, node.text);
  }

  YamlPtr expand_text(const std::string& path, const std::string& text) {
    if (text.starts_with("${") && closing_brace(text, 1) == text.size() - 1) {
      return evaluate(path, text.substr(2, text.size() - 3));  // keeps the type
    }
    std::string out;
    for (size_t i = 0; i < text.size();) {
      const size_t slashes = std::min(text.find_first_not_of('\\', i), text.size()) - i;
      if (text.compare(i + slashes, 2, "${") != 0) {
        const size_t n = std::max<size_t>(slashes, 1);
        out += text.substr(i, n);
        i += n;
        continue;
      }
      out.append(slashes / 2, '\\');
      i += slashes;
      if (slashes % 2 == 1) {
        out += "${";
        i += 2;
        continue;
      }
      const size_t end = closing_brace(text, i + 1);
      if (end == std::string::npos) throw Unresolved{"no closing }", "\\${ for a literal ${"};
      const YamlPtr value = evaluate(path, text.substr(i + 2, end - i - 2));
      if (value->kind != YamlNode::Kind::kScalar) {
        throw Unresolved{"a list inside a text", "the reference alone"};
      }
      out += value->text;
      if (out.size() > kMaxTextBytes) throw Unresolved{"a text of more than 64 KiB", ""};
      i = end + 1;
    }
    return make_scalar(out, true);
  }

  // `inner`: what stands between ${ and }.
  YamlPtr evaluate(const std::string& path, const std::string& inner) {
    for (const char* resolver : {"oc.env:", "env:"}) {
      if (inner.starts_with(resolver)) return environment(path, inner.substr(strlen(resolver)));
    }
    if (inner.find_first_of(":${ ,") != std::string::npos || inner.empty()) {
      throw Unresolved{"${" + inner + "}", "${section.key} or ${oc.env:NAME,default}"};
    }
    const std::string target = absolute(path, inner);
    const YamlEntry* entry = nullptr;
    const YamlNode* at = root_.get();
    for (size_t begin = 0; at;) {
      const size_t dot = std::min(target.find('.', begin), target.size());
      entry = at->find(target.substr(begin, dot - begin));
      if (!entry || dot == target.size()) break;
      at = entry->value.get();
      begin = dot + 1;
    }
    if (entry) return reference(target, entry->value);
    if (const ConfigField* field = fields_.find(target)) return from_value(field->get());
    const std::string near = fields_.suggest(target);
    throw Unresolved{"the unknown key " + target, near.empty() ? "" : "${" + near + "}"};
  }

  static std::string absolute(const std::string& path, const std::string& inner) {
    const size_t dots = std::min(inner.find_first_not_of('.'), inner.size());
    if (dots == 0) return inner;
    std::string base = path;
    for (size_t i = 0; i < dots; ++i) {
      const size_t dot = base.rfind('.');
      base = dot == std::string::npos ? "" : base.substr(0, dot);
    }
    return base.empty() ? inner.substr(dots) : base + "." + inner.substr(dots);
  }

  YamlPtr environment(const std::string& path, const std::string& args) {
    const size_t comma = args.find(',');
    const std::string name = trim(args.substr(0, comma));
    if (const auto value = env(name)) return make_scalar(*value, false);
    if (comma == std::string::npos) {
      throw Unresolved{"the environment variable " + name + ", which is not set",
                       "setting it, or a default: ${oc.env:" + name + ",VALUE}"};
    }
    const std::string fallback = trim(args.substr(comma + 1));
    if (fallback.find("${") != std::string::npos) return expand_text(path, fallback);
    return make_scalar(fallback, false);
  }

  static YamlPtr from_value(const ConfigValue& value) {
    if (const auto* text = std::get_if<std::string>(&value)) return make_scalar(*text, true);
    ConfigFindings none;
    const std::string yaml = value_to_yaml(value);
    return yaml.starts_with('[') ? parse_yaml(yaml, "", none) : make_scalar(yaml, false);
  }

  const YamlPtr& root_;
  const ConfigFields& fields_;
  ConfigFindings& findings_;
  std::set<std::string> active_;
  std::map<std::string, YamlPtr> done_;
};

}  // namespace

YamlPtr resolve_interpolations(const YamlPtr& root, const ConfigFields& fields,
                               ConfigFindings& findings) {
  return Resolver(root, fields, findings).walk(root, "", nullptr);
}

std::string escape_interpolation(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "${") == 0) {
      const size_t slashes = out.size() - (out.find_last_not_of('\\') + 1);
      out.append(slashes + 1, '\\');
    }
    out += text[i];
  }
  return out;
}

}  // namespace keel::config_internal
