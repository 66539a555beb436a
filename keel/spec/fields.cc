#include "keel/spec/fields.h"

#include <cmath>

namespace keel {

std::string brief(const Json& value) {
  std::string text = value.dump(-1, ' ', true);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

const Json* Fields::get(const std::string& key) const {
  if (!object_.is_object()) return nullptr;
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void Fields::error(const std::string& kind, const std::string& key, const std::string& message) {
  findings_.push_back({Level::kError, kind, file_, key, message});
}

void Fields::wrong_type(const std::string& key, const char* expected, const Json& got) {
  error("wrong_type", key,
        fmt::format("expected {}, got {} ({})", expected, brief(got), got.type_name()));
}

bool Fields::in_range(const std::string& key, const Json& value, int64_t low, int64_t high,
                      const std::string& kind) {
  const bool fits = value.is_number_unsigned()
                        ? value.get<uint64_t>() <= static_cast<uint64_t>(high) &&
                              static_cast<int64_t>(value.get<uint64_t>()) >= low
                        : value.get<int64_t>() >= low && value.get<int64_t>() <= high;
  if (!fits) {
    error(kind, key, fmt::format("expected {} to {}, got {}", low, high, brief(value)));
  }
  return fits;
}

int64_t Fields::integer(const std::string& key, int64_t low, int64_t high,
                        std::optional<int64_t> fallback) {
  const Json* value = get(key);
  if (value == nullptr) {
    if (!fallback) error("missing_field", key, "expected an integer, got nothing");
  } else if (!value->is_number_integer()) {
    wrong_type(key, "an integer", *value);
  } else if (in_range(key, *value, low, high, "bad_value")) {
    return value->get<int64_t>();
  }
  return fallback.value_or(low);
}

double Fields::number(const std::string& key, double low, double high,
                      std::optional<double> fallback) {
  const Json* value = get(key);
  if (value == nullptr) {
    if (!fallback) error("missing_field", key, "expected a number, got nothing");
  } else if (!value->is_number()) {
    wrong_type(key, "a number", *value);
  } else {
    const double x = value->get<double>();
    if (x > low && x <= high) return x;
    error("bad_value", key,
          fmt::format("expected above {} and at most {}, got {}", low, high, brief(*value)));
  }
  return fallback.value_or(high);
}

bool Fields::boolean(const std::string& key, bool fallback) {
  const Json* value = get(key);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  wrong_type(key, "true or false", *value);
  return fallback;
}

std::string Fields::text(const std::string& key, const std::string& fallback) {
  const Json* value = get(key);
  if (value == nullptr) return fallback;
  if (value->is_string()) return value->get<std::string>();
  wrong_type(key, "text", *value);
  return fallback;
}

std::vector<int64_t> Fields::integers(const std::string& key, int64_t low, int64_t high) {
  std::vector<int64_t> out;
  const Json* value = get(key);
  if (value == nullptr) return out;
  if (!value->is_array()) {
    wrong_type(key, "a list of integers", *value);
    return out;
  }
  for (const auto& x : *value) {
    if (!x.is_number_integer()) {
      wrong_type(key, "a list of integers", *value);
      return out;
    }
    if (in_range(key, x, low, high, "bad_value")) out.push_back(x.get<int64_t>());
  }
  return out;
}

std::vector<int64_t> Fields::token_ids(const std::string& key, int64_t vocab) {
  const Json* value = get(key);
  if (value == nullptr) return {};
  if (value->is_array()) return integers(key, 0, vocab - 1);
  if (!value->is_number_integer()) {
    wrong_type(key, "a token id or a list of them", *value);
    return {};
  }
  if (!in_range(key, *value, 0, vocab - 1, "bad_value")) return {};
  return {value->get<int64_t>()};
}

}  // namespace keel
