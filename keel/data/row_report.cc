#include "keel/data/row_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "keel/base/config_suggest.h"
#include "keel/data/json_record.h"

namespace keel {
namespace {

// What is left of a LaTeX command whose backslash and first letter a JSON reader turned into a
// control character: \frac -> form feed + "rac".
struct Damage {
  char control;
  const char* rest;
  const char* command;
};

constexpr Damage kDamages[] = {
    {'\f', "rac", "frac"},   {'\f', "orall", "forall"}, {'\t', "imes", "times"},
    {'\t', "ext", "text"},   {'\t', "heta", "theta"},   {'\t', "frac", "tfrac"},
    {'\b', "eta", "beta"},   {'\b', "egin", "begin"},   {'\b', "oxed", "boxed"},
    {'\b', "inom", "binom"}, {'\r', "ight", "right"},   {'\r', "ho", "rho"},
};

const Damage* find_damage(std::string_view s) {
  for (size_t i = s.find_first_of("\f\t\b\r"); i != s.npos;
       i = s.find_first_of("\f\t\b\r", i + 1)) {
    for (const auto& d : kDamages) {
      if (s[i] == d.control && s.substr(i + 1).starts_with(d.rest)) return &d;
    }
  }
  return nullptr;
}

}  // namespace

void RowReport::add(const std::string& kind, FindingLevel level, const std::string& field,
                    const std::string& message, const std::string& suggest) {
  failed_ |= level == FindingLevel::kError;
  log_.add({kind, level, file_, line_, row_, field, message, suggest, 0});
}

void RowReport::missing(const OrderedJson& parent, const std::string& path,
                        const std::string& key) {
  std::vector<std::string> keys;
  if (parent.is_object()) {
    constexpr size_t kMostKeys = 1000, kLongestKey = 64;  // bounded work for absurd rows
    for (const auto& [k, v] : parent.items()) {
      if (k.size() <= kLongestKey && keys.size() < kMostKeys) keys.push_back(k);
    }
  }
  const auto near = nearest_name(key, keys);
  const bool column = path.empty() && columns_ && !columns_->contains(key);
  failed_ = true;
  log_.add({"missing_field", FindingLevel::kError, file_, column ? -1 : line_, column ? -1 : row_,
            join_path(path, key), column ? "there is no such column" : "is not there", near, 0});
}

std::string join_path(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "." + key;
}

const OrderedJson* find_value(const OrderedJson& parent, const std::string& key) {
  if (!parent.is_object()) return nullptr;
  const auto it = parent.find(key);
  return it == parent.end() || it->is_null() ? nullptr : &*it;
}

const OrderedJson* require_value(const OrderedJson& parent, const std::string& path,
                                 const std::string& key, RowReport& report) {
  if (const auto* v = find_value(parent, key)) return v;
  if (parent.contains(key)) {
    report.error("null_value", join_path(path, key), "is null");
  } else {
    report.missing(parent, path, key);
  }
  return nullptr;
}

std::optional<std::string> read_text_value(const OrderedJson& value, const std::string& path,
                                           Empty empty, RowReport& report) {
  if (!value.is_string()) {
    report.error("wrong_type", path, fmt::format("expected a string, got {}", value.type_name()));
    return std::nullopt;
  }
  const auto& s = value.get_ref<const std::string&>();
  const bool blank = is_blank(s);
  if (blank && empty != Empty::kAllowed) {
    const bool is_error = s.empty() && empty == Empty::kError;
    report.add("empty_text", is_error ? FindingLevel::kError : FindingLevel::kWarn, path,
               s.empty() ? "is empty" : "is white space only", "");
    if (is_error) return std::nullopt;
  }
  if (const auto* d = find_damage(s)) {
    report.warn(
        "control_char", path,
        fmt::format("holds a control character where \\{} was probably meant; write \\\\{} in JSON",
                    d->command, d->command));
  }
  return s;
}

std::optional<Content> read_content(const OrderedJson& value, const std::string& path, Empty empty,
                                    RowReport& report) {
  Content content;
  if (value.is_array()) {
    auto messages = read_messages(value, path, report);
    if (!messages) return std::nullopt;
    content.messages = std::move(*messages);
    return content;
  }
  if (value.is_string()) {
    auto text = read_text_value(value, path, empty, report);
    if (!text) return std::nullopt;
    content.text = std::move(*text);
    return content;
  }
  report.error("wrong_type", path,
               fmt::format("expected a string or a list of messages, got {}", value.type_name()));
  return std::nullopt;
}

}  // namespace keel
