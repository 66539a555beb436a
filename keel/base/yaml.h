// YAML text → a small immutable node tree that remembers lines. For configuration files: what is
// ambiguous or dangerous (tags, two documents, duplicate keys, alias bombs, deep nesting, tabs,
// broken UTF-8) becomes a finding, never a surprise. The scanner is yaml-cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/base/config_finding.h"

namespace keel {

struct YamlNode;
using YamlPtr = std::shared_ptr<const YamlNode>;  // shared where the text uses aliases

struct YamlEntry {
  std::string key;
  YamlPtr value;
  std::string source;  // file name or "override"
  int line = 0;        // of the key, 1-based, 0 = no file
};

struct YamlNode {
  enum class Kind { kScalar, kList, kMap };
  Kind kind = Kind::kScalar;
  std::string text;     // scalar, quotes and escapes resolved
  bool quoted = false;  // scalar: quoted or block text, so never a number, bool or null
  bool null = false;    // scalar: plain ~, null or nothing
  int line = 0;
  int64_t num_nodes = 1;           // with aliases expanded
  std::vector<YamlPtr> items;      // list
  std::vector<YamlEntry> entries;  // map, in order of the text; keys are unique

  const YamlEntry* find(std::string_view key) const;
};

YamlPtr make_scalar(std::string text, bool quoted);
YamlPtr make_map(std::vector<YamlEntry> entries);

// Parses one document. Faults go to `findings` with source `name`; returns null after a fault that
// leaves no tree. An empty document is the finding empty_file.
YamlPtr parse_yaml(std::string_view text, const std::string& name, ConfigFindings& findings);

// Offset of the first byte that is not valid UTF-8, or npos.
size_t find_invalid_utf8(std::string_view text);

// True for what YAML reads as null when it is not quoted: "", ~, null, Null, NULL.
bool is_null_word(std::string_view text);

}  // namespace keel
