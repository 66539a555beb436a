#include "keel/sim/input/fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>

#include "keel/base/config_suggest.h"
#include "keel/base/error.h"

namespace keel::sim {
namespace {

using Kind = YamlNode::Kind;

std::string shown(const YamlNode& node) {
  if (node.kind == Kind::kMap) return "a map";
  if (node.kind == Kind::kList) return "a list";
  if (node.null) return "nothing";
  return fmt::format("{:.60}{}", node.text, node.text.size() > 60 ? "..." : "");
}

std::optional<double> to_number(const YamlNode& node) {
  if (node.kind != Kind::kScalar || node.quoted) return std::nullopt;
  const char* first = node.text.data();
  const char* last = first + node.text.size();
  if (first != last && *first == '+') ++first;
  double value = 0;
  const auto [end, error] = std::from_chars(first, last, value);
  if (error != std::errc() || end != last || !std::isfinite(value)) return std::nullopt;
  return value;
}

}  // namespace

std::string read_input_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  KEEL_REQUIRE(in.good() && text << in.rdbuf(),
               "[{}] expected a file that can be read, got none; check the path", path);
  return text.str();
}

std::shared_ptr<InputFile> open_input(const std::string& text, const std::string& file_name,
                                      std::string_view schema) {
  auto file = std::make_shared<InputFile>();
  file->name = file_name;
  file->root = parse_yaml(text, file_name, file->findings);
  file->findings.throw_if_errors();
  KEEL_REQUIRE(file->root != nullptr && file->root->kind == Kind::kMap,
               "[{}:1] expected a map with `schema: {}`, got {}; check the file", file_name, schema,
               file->root ? shown(*file->root) : "nothing");
  const auto* entry = file->root->find("schema");
  KEEL_REQUIRE(entry != nullptr && entry->value->text == schema,
               "[{}:{} schema] expected {}, got {}; check that this is the right file", file_name,
               entry ? entry->line : 1, schema, entry ? shown(*entry->value) : "nothing");
  return file;
}

MapReader::MapReader(std::shared_ptr<InputFile> file, YamlPtr node, std::string path, int line)
    : file_(std::move(file)), node_(std::move(node)), path_(std::move(path)), line_(line) {
  if (node_ != nullptr && node_->kind != Kind::kMap) {
    fault("", "a map", shown(*node_));
    node_ = nullptr;
  }
}

std::string MapReader::field(std::string_view key) const {
  if (key.empty()) return path_;
  return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

void MapReader::fault(std::string_view key, std::string expected, std::string got,
                      std::string hint) {
  const auto* entry = node_ && node_->kind == Kind::kMap ? node_->find(key) : nullptr;
  ConfigFinding f;
  f.kind = "bad_value";
  f.field = field(key);
  f.source = file_->name;
  f.line = entry ? entry->line : line_;
  f.expected = std::move(expected);
  f.got = std::move(got);
  f.hint = std::move(hint);
  file_->findings.add(std::move(f));
}

bool MapReader::has(std::string_view key) const {
  const auto* entry = node_ ? node_->find(key) : nullptr;
  return entry != nullptr && !(entry->value->kind == Kind::kScalar && entry->value->null);
}

const YamlEntry* MapReader::find(std::string_view key) {
  known_.emplace_back(key);
  return has(key) ? node_->find(key) : nullptr;
}

void MapReader::read(std::string_view key, std::string& out) {
  const auto* e = find(key);
  if (e == nullptr) return;
  if (e->value->kind == Kind::kScalar) {
    out = e->value->text;
  } else {
    fault(key, "a text", shown(*e->value));
  }
}

std::optional<double> MapReader::number(const YamlEntry& entry, std::string_view key, double min,
                                        bool whole) {
  const auto value = to_number(*entry.value);
  const bool fits = value && *value >= min &&
                    (!whole || (*value == std::floor(*value) && std::abs(*value) < 9e15));
  if (fits) return value;
  fault(key, fmt::format("a {}number of at least {:g}", whole ? "whole " : "", min),
        shown(*entry.value));
  return std::nullopt;
}

void MapReader::read(std::string_view key, double& out, double min) {
  if (const auto* e = find(key)) out = number(*e, key, min, false).value_or(out);
}

void MapReader::read(std::string_view key, int64_t& out, int64_t min) {
  const auto* e = find(key);
  if (e == nullptr) return;
  if (const auto value = number(*e, key, static_cast<double>(min), true)) {
    out = static_cast<int64_t>(*value);
  }
}

void MapReader::read(std::string_view key, bool& out) {
  std::optional<bool> value;
  read(key, value);
  out = value.value_or(out);
}

void MapReader::read(std::string_view key, std::optional<double>& out, double min) {
  if (const auto* e = find(key)) out = number(*e, key, min, false);
}

void MapReader::read(std::string_view key, std::optional<bool>& out) {
  const auto* e = find(key);
  if (e == nullptr) return;
  const auto& text = e->value->text;
  if (e->value->kind == Kind::kScalar && !e->value->quoted && (text == "true" || text == "false")) {
    out = text == "true";
  } else {
    fault(key, "true or false", shown(*e->value));
  }
}

void MapReader::read(std::string_view key, std::vector<int64_t>& out) {
  const auto* e = find(key);
  if (e == nullptr) return;
  if (e->value->kind != Kind::kList) return fault(key, "a list", shown(*e->value));
  out.clear();
  for (const auto& item : e->value->items) {
    const auto value = to_number(*item);
    if (!value || *value < 0 || *value != std::floor(*value) || *value > 9e15) {
      return fault(key, "whole numbers of at least 0", shown(*item));
    }
    out.push_back(static_cast<int64_t>(*value));
  }
}

void MapReader::read(std::string_view key, std::vector<std::string>& out) {
  const auto* e = find(key);
  if (e == nullptr) return;
  if (e->value->kind != Kind::kList) return fault(key, "a list", shown(*e->value));
  out.clear();
  for (const auto& item : e->value->items) {
    if (item->kind != Kind::kScalar) return fault(key, "a list of texts", shown(*item));
    out.push_back(item->text);
  }
}

bool MapReader::is_map(std::string_view key) const {
  return has(key) && node_->find(key)->value->kind == Kind::kMap;
}

bool MapReader::is_list(std::string_view key) const {
  return has(key) && node_->find(key)->value->kind == Kind::kList;
}

MapReader MapReader::map(std::string_view key) {
  const auto* e = find(key);
  return {file_, e ? e->value : nullptr, field(key), e ? e->line : line_};
}

std::vector<MapReader> MapReader::maps(std::string_view key) {
  std::vector<MapReader> out;
  const auto* e = find(key);
  if (e == nullptr) return out;
  if (e->value->kind != Kind::kList) {
    fault(key, "a list", shown(*e->value));
    return out;
  }
  for (size_t i = 0; i < e->value->items.size(); ++i) {
    const auto& item = e->value->items[i];
    out.push_back({file_, item, fmt::format("{}[{}]", field(key), i), item->line});
  }
  return out;
}

std::vector<std::pair<std::string, MapReader>> MapReader::named_maps() {
  std::vector<std::pair<std::string, MapReader>> out;
  if (node_ == nullptr) return out;
  for (const auto& e : node_->entries) {
    known_.push_back(e.key);
    out.emplace_back(e.key, MapReader(file_, e.value, field(e.key), e.line));
  }
  return out;
}

std::vector<std::pair<std::string, std::optional<double>>> MapReader::numbers() {
  std::vector<std::pair<std::string, std::optional<double>>> out;
  if (node_ == nullptr) return out;
  for (const auto& e : node_->entries) {
    known_.push_back(e.key);
    out.emplace_back(e.key, to_number(*e.value));
  }
  return out;
}

void MapReader::require(std::string_view key) {
  if (!has(key)) fault(key, "a value", "nothing", "add the field");
}

void MapReader::ignore(std::string_view key) { known_.emplace_back(key); }

void MapReader::finish(Unknown unknown) {
  if (node_ == nullptr) return;
  for (const auto& e : node_->entries) {
    if (std::find(known_.begin(), known_.end(), e.key) != known_.end()) continue;
    // Two- and three-letter degrees (tp, vpp) are all near to each other.
    const auto near = e.key.size() > 3 ? nearest_name(e.key, known_) : std::string();
    ConfigFinding f;
    f.kind = "unknown_key";
    f.field = field(e.key);
    f.source = file_->name;
    f.line = e.line;
    f.expected = "a known field";
    f.got = e.key;
    f.suggest = near;
    f.hint = near;
    if (near.empty() && unknown == Unknown::kErrorIfNear) {
      f.level = ConfigFinding::Level::kWarning;
      f.hint = "the twin does not use it";
    }
    if (f.hint.empty() && near.empty()) {
      f.hint = fmt::format("one of: {}", fmt::join(known_, ", "));
    }
    file_->findings.add(std::move(f));
  }
}

}  // namespace keel::sim
