#include "keel/base/config_convert.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "keel/base/config.h"
#include "keel/base/config_suggest.h"

namespace keel::config_internal {
namespace {

bool all_of(std::string_view text, const char* allowed) {
  return !text.empty() && text.find_first_not_of(allowed) == std::string_view::npos;
}

constexpr const char* kDigits = "0123456789";

std::string_view without_sign(std::string_view text) {
  return text.starts_with('-') || text.starts_with('+') ? text.substr(1) : text;
}

template <class T>
bool parse_all(std::string_view text, T& out, int base = 10) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto end = text.data() + text.size();
  std::from_chars_result r{};
  if constexpr (std::is_floating_point_v<T>) {
    r = std::from_chars(text.data(), end, out);
  } else {
    r = std::from_chars(text.data(), end, out, base);
  }
  return r.ec == std::errc() && r.ptr == end;
}

// Spellings that YAML 1.1 and 1.2 read differently.
std::optional<Fault> ambiguous_number(const ConfigField& field, std::string_view text) {
  const std::string_view body = without_sign(text);
  const std::string sign(text.substr(0, text.size() - body.size()));
  Fault fault{"ambiguous_number", describe_type(field), "", "", ""};
  if (body.size() > 1 && body[0] == '0' && all_of(body, kDigits)) {
    const size_t first = std::min(body.find_first_not_of('0'), body.size() - 1);
    fault.got = fmt::format("{} (a leading zero means octal to some readers)", text);
    fault.hint = sign + std::string(body.substr(first));
  } else if (body.size() > 2 && body[0] == '0' && body[1] == 'o') {
    fault.got = fmt::format("{} (octal to some readers only)", text);
    fault.hint = "the decimal number";
  } else if (all_of(body, "0123456789:") && body.find(':') != std::string_view::npos &&
             body[0] != ':') {
    fault.got = fmt::format("{} (a number in base 60 to some readers)", text);
    fault.hint = "the decimal number";
  } else if (all_of(body, "0123456789_.") && body.find('_') != std::string_view::npos &&
             body[0] != '_') {
    fault.got = fmt::format("{} (underscores are not read by all)", text);
    std::string plain(text);
    plain.erase(std::remove(plain.begin(), plain.end(), '_'), plain.end());
    fault.hint = plain;
  } else {
    return std::nullopt;
  }
  return fault;
}

std::string number_hint(std::string_view text) {
  if (text.find("\xE2\x88\x92") != std::string_view::npos) {
    return "the ASCII minus sign '-' (this one is U+2212)";
  }
  if (text.find(',') != std::string_view::npos) return "a decimal point instead of the comma";
  return "";
}

bool fits(const ConfigField& field, int64_t value) {
  return value >= field.int_min && value <= field.int_max;
}

bool in_range(const ConfigField& field, double value) {
  return (field.above_min ? value > field.min : value >= field.min) && value <= field.max;
}

Fault wrong_type(const ConfigField& field, const YamlNode& node) {
  Fault fault{"wrong_type", describe_type(field), describe(node), "", ""};
  const bool is_text = field.type == ConfigType::kText || field.type == ConfigType::kTextList;
  if (node.quoted && !is_text) fault.hint = node.text + " without quotes";
  return fault;
}

std::optional<Fault> convert_int(const ConfigField& field, const YamlNode& node, int64_t& out) {
  const std::string& text = node.text;
  const std::string_view body = without_sign(text);
  if (auto fault = ambiguous_number(field, text)) return fault;
  if (all_of(body, kDigits)) {
    if (parse_all(text, out) && fits(field, out) && in_range(field, static_cast<double>(out)))
      return std::nullopt;
    return Fault{"out_of_range", describe_type(field), text, "", ""};
  }
  if (text.starts_with("0x") && parse_all(std::string_view(text).substr(2), out, 16)) {
    if (fits(field, out) && in_range(field, static_cast<double>(out))) return std::nullopt;
    return Fault{"out_of_range", describe_type(field), text, "", ""};
  }
  Fault fault = wrong_type(field, node);
  double real = 0;
  if (parse_all(text, real) && std::isfinite(real) && std::fabs(real) < 1e15) {
    fault.hint = fmt::format("{}", static_cast<int64_t>(std::llround(real)));
  } else {
    fault.hint = number_hint(text);
  }
  return fault;
}

std::optional<Fault> convert_real(const ConfigField& field, const YamlNode& node, double& out) {
  const std::string& text = node.text;
  if (auto fault = ambiguous_number(field, text)) return fault;
  const std::string_view body = without_sign(text);
  const bool special = body == ".inf" || body == ".Inf" || body == ".INF" || body == "inf" ||
                       text == ".nan" || text == ".NaN" || text == ".NAN" || text == "nan";
  const bool number = all_of(body, "0123456789.eE+-") && parse_all(text, out);
  if (special || (number && !in_range(field, out))) {
    return Fault{"out_of_range", describe_type(field), text, "", ""};
  }
  if (number) return std::nullopt;
  if (all_of(body, kDigits)) return Fault{"out_of_range", describe_type(field), text, "", ""};
  Fault fault = wrong_type(field, node);
  fault.hint = number_hint(text);
  return fault;
}

std::optional<Fault> convert_bool(const ConfigField& field, const YamlNode& node, bool& out) {
  std::string word = node.text;
  const bool mixed = std::any_of(word.begin() + (word.empty() ? 0 : 1), word.end(), ::isupper) &&
                     !std::all_of(word.begin(), word.end(), ::isupper);
  std::transform(word.begin(), word.end(), word.begin(), ::tolower);
  if (!mixed && (word == "true" || word == "false")) {
    out = word == "true";
    return std::nullopt;
  }
  const bool yes = word == "yes" || word == "on" || word == "y";
  if (yes || word == "no" || word == "off" || word == "n") {
    return Fault{"ambiguous_bool", describe_type(field),
                 node.text + " (a truth value to some readers, a word to others)",
                 yes ? "true" : "false", ""};
  }
  Fault fault = wrong_type(field, node);
  if (word == "true" || word == "1") fault.hint = "true";
  if (word == "false" || word == "0") fault.hint = "false";
  return fault;
}

std::optional<Fault> convert_choice(const ConfigField& field, const YamlNode& node,
                                    std::string& out) {
  const auto it = std::find(field.choices.begin(), field.choices.end(), node.text);
  if (it != field.choices.end()) {
    out = node.text;
    return std::nullopt;
  }
  const std::string near = nearest_name(node.text, field.choices);
  return Fault{"bad_value", describe_type(field), node.text.empty() ? "\"\"" : node.text, near,
               near};
}

std::optional<Fault> convert_scalar(const ConfigField& field, const YamlNode& node,
                                    ConfigValue& out) {
  if (node.kind != YamlNode::Kind::kScalar) return wrong_type(field, node);
  const bool textual = field.type == ConfigType::kText || field.type == ConfigType::kTextList ||
                       field.type == ConfigType::kChoice;
  if (node.null || (node.quoted && !textual)) return wrong_type(field, node);
  auto read = [&](auto zero, auto&& converter) {
    auto fault = converter(field, node, zero);
    if (!fault) out = zero;
    return fault;
  };
  switch (field.type) {
    case ConfigType::kBool:
      return read(false, convert_bool);
    case ConfigType::kInt:
    case ConfigType::kIntList:
      return read(int64_t{0}, convert_int);
    case ConfigType::kReal:
    case ConfigType::kRealList:
      return read(0.0, convert_real);
    case ConfigType::kChoice:
      return read(std::string(), convert_choice);
    case ConfigType::kText:
    case ConfigType::kTextList:
      out = node.text;
  }
  return std::nullopt;
}

template <class T>
std::optional<Fault> convert_list(const ConfigField& field, const YamlNode& node,
                                  ConfigValue& out) {
  std::vector<T> list;
  ConfigValue item;
  if (node.kind == YamlNode::Kind::kList) {
    for (size_t i = 0; i < node.items.size(); ++i) {
      if (auto fault = convert_scalar(field, *node.items[i], item)) {
        fault->item = static_cast<int>(i);
        return fault;
      }
      list.push_back(std::get<T>(item));
    }
  } else if (!node.null) {  // null is the empty list, one value is a list of one
    if (auto fault = convert_scalar(field, node, item)) return fault;
    list.push_back(std::get<T>(item));
  }
  out = std::move(list);
  return std::nullopt;
}

}  // namespace

std::string describe(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::kList) return "a list";
  if (node.kind == YamlNode::Kind::kMap) return "a section";
  if (node.null) return "nothing (null)";
  std::string shown = node.text.substr(0, 60);
  while (find_invalid_utf8(shown) != std::string_view::npos) shown.pop_back();
  if (shown.size() < node.text.size()) shown += "...";
  if (node.quoted) return fmt::format("the text \"{}\"", shown);
  return shown;
}

std::optional<Fault> convert(const ConfigField& field, const YamlNode& node, ConfigValue& out) {
  if (node.null && field.nullable) {
    out = std::monostate{};
    return std::nullopt;
  }
  switch (field.type) {
    case ConfigType::kIntList:
      return convert_list<int64_t>(field, node, out);
    case ConfigType::kRealList:
      return convert_list<double>(field, node, out);
    case ConfigType::kTextList:
      return convert_list<std::string>(field, node, out);
    default:
      return convert_scalar(field, node, out);
  }
}

}  // namespace keel::config_internal
