#include <algorithm>
#include <cmath>

#include "keel/base/config.h"
#include "keel/base/config_interpolate.h"
#include "keel/base/yaml.h"

namespace keel {
namespace {

std::string number_to_yaml(double value) {
  if (std::isnan(value)) return ".nan";
  if (std::isinf(value)) return value > 0 ? ".inf" : "-.inf";
  std::string text = fmt::format("{}", value);
  const size_t e = text.find('e');
  const std::string mantissa = text.substr(0, e);
  // YAML 1.1 readers take "1e-06" for a text; the point makes it a number everywhere.
  if (mantissa.find('.') == std::string::npos) text.insert(std::min(e, text.size()), ".0");
  return text;
}

// Plain words need no quotes; anything that a YAML reader could take for something else has them.
bool is_plain_word(const std::string& text) {
  if (text.empty() || !std::isalpha(static_cast<unsigned char>(text[0]))) return false;
  const auto good = [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-' || c == '.' || c == '/';
  };
  if (!std::all_of(text.begin(), text.end(), good) || is_null_word(text)) return false;
  std::string low = text;
  std::transform(low.begin(), low.end(), low.begin(), ::tolower);
  for (const char* word : {"true", "false", "yes", "no", "on", "off", "y", "n", "inf", "nan"}) {
    if (low == word) return false;
  }
  return true;
}

std::string text_to_yaml(const std::string& raw) {
  const std::string text = config_internal::escape_interpolation(raw);
  if (is_plain_word(text)) return text;
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);  // a JSON text is YAML
}

template <class T, class F>
std::string list_to_yaml(const std::vector<T>& list, F&& item) {
  std::string out = "[";
  for (const T& x : list) out += (out.size() > 1 ? ", " : "") + item(x);
  return out + "]";
}

std::string range_text(const ConfigField& f, bool whole) {
  const auto number = [&](double v) {
    return whole || (v == std::floor(v) && std::fabs(v) < 1e15)
               ? fmt::format("{}", static_cast<int64_t>(v))
               : fmt::format("{}", v);
  };
  const bool low = std::isfinite(f.min), high = std::isfinite(f.max);
  if (low && high && f.above_min) {
    return " above " + number(f.min) + " and at most " + number(f.max);
  }
  if (low && high) return " from " + number(f.min) + " to " + number(f.max);
  if (low) return (f.above_min ? " above " : " of at least ") + number(f.min);
  return high ? " of at most " + number(f.max) : "";
}

template <class Visit>
void for_each_nested(const ConfigFields& fields, Visit&& visit) {
  for (const ConfigField& f : fields.fields()) {
    std::vector<std::string> parts;
    for (size_t begin = 0; begin <= f.path.size();) {
      const size_t dot = std::min(f.path.find('.', begin), f.path.size());
      parts.push_back(f.path.substr(begin, dot - begin));
      begin = dot + 1;
    }
    visit(f, parts);
  }
}

void print_yaml(const OrderedJson& node, int depth, std::string& out) {
  for (const auto& [key, value] : node.items()) {
    out += std::string(static_cast<size_t>(depth) * 2, ' ') + key + ":";
    if (value.is_object()) {
      out += "\n";
      print_yaml(value, depth + 1, out);
    } else {
      out += " " + value.get<std::string>() + "\n";
    }
  }
}

// Nested object with leaf(field) at each field; sections stay together wherever fields stand.
template <class Leaf>
OrderedJson nest(const ConfigFields& fields, Leaf&& leaf) {
  OrderedJson root = OrderedJson::object();
  for_each_nested(fields, [&](const ConfigField& f, const std::vector<std::string>& parts) {
    OrderedJson* at = &root;
    for (size_t i = 0; i + 1 < parts.size(); ++i) at = &(*at)[parts[i]];
    (*at)[parts.back()] = leaf(f);
  });
  return root;
}

OrderedJson value_to_json(const ConfigValue& value) {
  return std::visit(
      [](const auto& v) -> OrderedJson {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::monostate>)
          return nullptr;
        else
          return v;
      },
      value);
}

}  // namespace

std::string value_to_yaml(const ConfigValue& value) {
  struct Printer {
    std::string operator()(std::monostate) const { return "null"; }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(int64_t v) const { return fmt::format("{}", v); }
    std::string operator()(double v) const { return number_to_yaml(v); }
    std::string operator()(const std::string& v) const { return text_to_yaml(v); }
    std::string operator()(const std::vector<int64_t>& v) const { return list_to_yaml(v, *this); }
    std::string operator()(const std::vector<double>& v) const { return list_to_yaml(v, *this); }
    std::string operator()(const std::vector<std::string>& v) const {
      return list_to_yaml(v, *this);
    }
  };
  return std::visit(Printer{}, value);
}

std::string describe_type(const ConfigField& field) {
  std::string out;
  switch (field.type) {
    case ConfigType::kBool:
      out = "true or false";
      break;
    case ConfigType::kInt:
      out = "a whole number" + range_text(field, true);
      break;
    case ConfigType::kReal:
      out = "a number" + range_text(field, false);
      break;
    case ConfigType::kText:
      out = "a text";
      break;
    case ConfigType::kChoice:
      out = fmt::format("one of {}", fmt::join(field.choices, ", "));
      break;
    case ConfigType::kIntList:
      out = "a list of whole numbers" + range_text(field, true);
      break;
    case ConfigType::kRealList:
      out = "a list of numbers" + range_text(field, false);
      break;
    case ConfigType::kTextList:
      out = "a list of texts";
      break;
  }
  return field.nullable ? out + ", or null" : out;
}

std::vector<ConfigOption> list_options(const ConfigFields& fields, const ConfigFields& defaults,
                                       const ConfigChecks::Origins& origins) {
  std::vector<ConfigOption> out;
  for (const ConfigField& f : fields.fields()) {
    ConfigOption o{f.path, describe_type(f), f.help, value_to_yaml(f.get()), "", "default"};
    o.fallback = f.required ? "???" : value_to_yaml(defaults.find(f.path)->get());
    if (const auto it = origins.find(f.path); it != origins.end()) {
      o.origin = it->second.source;
      if (it->second.line > 0) o.origin += fmt::format(":{}", it->second.line);
    }
    out.push_back(std::move(o));
  }
  return out;
}

std::string dump_yaml(const ConfigFields& fields) {
  std::string out;
  print_yaml(nest(fields, [](const ConfigField& f) { return value_to_yaml(f.get()); }), 0, out);
  return out;
}

OrderedJson dump_json(const ConfigFields& fields) {
  return nest(fields, [](const ConfigField& f) { return value_to_json(f.get()); });
}

std::string config_hash(const ConfigFields& fields) {
  std::vector<std::string> lines;
  for (const ConfigField& f : fields.fields()) {
    lines.push_back(f.path + "=" + value_to_yaml(f.get()) + "\n");
  }
  std::sort(lines.begin(), lines.end());
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const std::string& line : lines) {
    for (const unsigned char c : line) hash = (hash ^ c) * 0x100000001b3;
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace keel
