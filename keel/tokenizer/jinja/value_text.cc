// Values as text: str(), repr() and JSON as Python's json module writes it.
#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "keel/tokenizer/jinja/value.h"
#include "keel/tokenizer/pipeline/unicode.h"

namespace keel::jinja {
namespace {

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return !(category == UTF8PROC_CATEGORY_CN || category >= UTF8PROC_CATEGORY_ZS);
}

std::string string_repr(const std::string& s) {
  const bool has_single = s.find('\'') != std::string::npos;
  const bool has_double = s.find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string out(1, quote);
  for (const char32_t c : unicode::to_code_points(s)) {
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      unicode::append(out, c);
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    }
  }
  return out + quote;
}

void json_string(const std::string& s, bool ensure_ascii, std::string& out) {
  out += '"';
  for (size_t i = 0; i < s.size();) {
    const unicode::CodePoint c = unicode::decode(s.data() + i);
    i += c.num_bytes;
    const auto u = static_cast<uint32_t>(c.value);
    switch (u) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\b':
        out += "\\b";
        break;
      default:
        if (u < 0x20 || (ensure_ascii && u > 0x7E && u < 0x10000)) {
          out += fmt::format("\\u{:04x}", u);
        } else if (ensure_ascii && u >= 0x10000) {
          const uint32_t v = u - 0x10000;
          out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (v >> 10), 0xDC00 + (v & 0x3FF));
        } else {
          unicode::append(out, c.value);
        }
    }
  }
  out += '"';
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  void write(const Value& v, int level) {
    budget_.step();
    const size_t before = out_.size();
    if (v.is_none()) {
      out_ += "null";
    } else if (v.is_bool()) {
      out_ += v.truthy() ? "true" : "false";
    } else if (v.is_int()) {
      out_ += std::to_string(v.as_int());
    } else if (v.is_float()) {
      out_ += number(v.as_double());
    } else if (v.is_string()) {
      json_string(v.str(), style_.ensure_ascii, out_);
      budget_.bytes(out_.size() - before);
    } else if (v.is_list()) {
      write_list(v.items(), level);
    } else if (v.is_dict()) {
      write_dict(v.pairs(), level);
    } else {
      throw_invalid("[chat template] expected a value that has a JSON form, got {}",
                    v.is_undefined() ? v.undefined_hint() : v.type_name());
    }
  }

  std::string out_;

 private:
  static std::string number(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d > 0 ? "Infinity" : "-Infinity";
    return double_text(d);
  }

  void line(int level) {
    if (style_.indent < 0) return;
    const size_t n = static_cast<size_t>(style_.indent) * static_cast<size_t>(level);
    budget_.bytes(n);
    out_ += '\n';
    out_.append(n, ' ');
  }

  void separator(bool first, int level) {
    if (!first) out_ += style_.item_separator;
    line(level);
  }

  void write_list(const Values& items, int level) {
    out_ += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      separator(i == 0, level + 1);
      write(items[i], level + 1);
    }
    if (!items.empty()) line(level);
    out_ += ']';
  }

  std::string key_text(const Value& key) {
    if (key.is_string()) return key.str();
    if (key.is_none()) return "null";
    if (key.is_bool()) return key.truthy() ? "true" : "false";
    KEEL_REQUIRE(key.is_number(), "[chat template] expected a JSON key, got {}", key.type_name());
    return key.is_float() ? number(key.as_double()) : std::to_string(key.as_int());
  }

  void write_dict(const Pairs& pairs, int level) {
    std::vector<std::pair<std::string, const Value*>> items;
    for (const auto& [key, value] : pairs) items.emplace_back(key_text(key), &value);
    if (style_.sort_keys) {
      std::stable_sort(items.begin(), items.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
    }
    out_ += '{';
    for (size_t i = 0; i < items.size(); ++i) {
      separator(i == 0, level + 1);
      json_string(items[i].first, style_.ensure_ascii, out_);
      out_ += style_.key_separator;
      write(*items[i].second, level + 1);
    }
    if (!items.empty()) line(level);
    out_ += '}';
  }

  const JsonStyle& style_;
  Budget& budget_;
};

}  // namespace

// Python's repr of a float: shortest digits that read back, exponent below 1e-4 and from 1e16.
std::string double_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  std::string text(buffer, end);
  const size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  if (exponent < -4 || exponent >= 16) return text;  // to_chars also writes two exponent digits
  std::string digits = text.substr(0, e);
  const bool negative = digits[0] == '-';
  std::erase_if(digits, [](char c) { return c == '-' || c == '.'; });
  std::string out = negative ? "-" : "";
  if (exponent < 0) {
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  }
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string to_text(const Value& value, Budget& budget) {
  if (value.is_string()) {
    budget.bytes(value.str().size());
    return value.str();
  }
  if (value.is_undefined()) return "";
  return to_repr(value, budget);
}

std::string to_repr(const Value& value, Budget& budget) {
  budget.step();
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "None";
  if (value.is_bool()) return value.truthy() ? "True" : "False";
  if (value.is_int()) return std::to_string(value.as_int());
  if (value.is_float()) return double_text(value.as_double());
  std::string out;
  if (value.is_string()) {
    out = string_repr(value.str());
  } else if (value.is_list()) {
    for (const Value& v : value.items()) out += (out.empty() ? "" : ", ") + to_repr(v, budget);
    if (value.is_tuple()) {
      out = value.items().size() == 1 ? "(" + out + ",)" : "(" + out + ")";
    } else {
      out = "[" + out + "]";
    }
  } else if (value.is_dict()) {
    for (const auto& [k, v] : value.pairs()) {
      out += (out.empty() ? "" : ", ") + to_repr(k, budget) + ": " + to_repr(v, budget);
    }
    out = "{" + out + "}";
  } else {
    out = fmt::format("<{}>", value.type_name());
  }
  budget.bytes(out.size());
  return out;
}

std::string to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  JsonWriter writer(style, budget);
  writer.write(value, 0);
  return std::move(writer.out_);
}

}  // namespace keel::jinja
