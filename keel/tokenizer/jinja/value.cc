#include "keel/tokenizer/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "keel/tokenizer/pipeline/unicode.h"

namespace keel::jinja {
namespace {

int checked_depth(int depth) {
  KEEL_REQUIRE(depth <= Value::kMaxDepth, "[chat template] expected at most {} nested values",
               Value::kMaxDepth);
  return depth;
}

Value json_value(const OrderedJson& json, int depth) {
  checked_depth(depth);
  switch (json.type()) {
    case OrderedJson::value_t::boolean:
      return json.get<bool>();
    case OrderedJson::value_t::number_integer:
      return json.get<int64_t>();
    case OrderedJson::value_t::number_unsigned: {
      const auto u = json.get<uint64_t>();
      if (u > INT64_MAX) return static_cast<double>(u);
      return static_cast<int64_t>(u);
    }
    case OrderedJson::value_t::number_float:
      return json.get<double>();
    case OrderedJson::value_t::string:
      return unicode::to_valid(json.get_ref<const std::string&>());
    case OrderedJson::value_t::array: {
      Values items;
      for (const auto& item : json) items.push_back(json_value(item, depth + 1));
      return Value::list(std::move(items));
    }
    case OrderedJson::value_t::object: {
      Pairs items;
      for (const auto& [key, item] : json.items()) {
        items.emplace_back(unicode::to_valid(key), json_value(item, depth + 1));
      }
      return Value::dict(std::move(items));
    }
    default:
      return None{};
  }
}

}  // namespace

Value Value::list(Values items, bool tuple) {
  int depth = 0;
  for (const Value& v : items) depth = std::max(depth, v.depth());
  Value out;
  out.data_ = std::make_shared<const List>(List{std::move(items), checked_depth(depth + 1), tuple});
  return out;
}

Value Value::dict(Pairs items) {
  int depth = 0;
  for (const auto& [key, v] : items) depth = std::max({depth, key.depth(), v.depth()});
  Value out;
  out.data_ = std::make_shared<const Dict>(Dict{std::move(items), checked_depth(depth + 1)});
  return out;
}

Value Value::from_json(const OrderedJson& json) { return json_value(json, 0); }

const Values& Value::items() const { return std::get<std::shared_ptr<const List>>(data_)->items; }

const Pairs& Value::pairs() const { return std::get<std::shared_ptr<const Dict>>(data_)->items; }

bool Value::truthy() const {
  if (is_undefined() || is_none()) return false;
  if (is_integral()) return as_int() != 0;
  if (is_float()) return as_double() != 0;
  if (is_string()) return !str().empty();
  if (is_list()) return !items().empty();
  if (is_dict()) return !pairs().empty();
  return true;
}

bool Value::is_tuple() const {
  return is_list() && std::get<std::shared_ptr<const List>>(data_)->tuple;
}

const char* Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is_int()) return "int";
  if (is_float()) return "float";
  if (is_string()) return "str";
  if (is_list()) return is_tuple() ? "tuple" : "list";
  if (is_dict()) return "dict";
  if (is_loop()) return "LoopContext";
  if (as_namespace()) return "Namespace";
  return "function";
}

int Value::depth() const {
  if (is_list()) return std::get<std::shared_ptr<const List>>(data_)->depth;
  if (is_dict()) return std::get<std::shared_ptr<const Dict>>(data_)->depth;
  if (is_loop()) return loop().items.depth() + 1;
  return 0;
}

const Value* Value::find(const Value& key, Budget& budget) const {
  for (const auto& [k, v] : pairs()) {
    if (equal(k, key, budget)) return &v;
  }
  return nullptr;
}

bool equal(const Value& a, const Value& b, Budget& budget) {
  budget.step();
  if (a.is_number() && b.is_number()) {
    return a.is_integral() && b.is_integral() ? a.as_int() == b.as_int()
                                              : a.as_double() == b.as_double();
  }
  if (a.is_string() && b.is_string()) return a.str() == b.str();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.is_list() && b.is_list()) {
    if (a.is_tuple() != b.is_tuple()) return false;
    return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(),
                      [&](const Value& x, const Value& y) { return equal(x, y, budget); });
  }
  if (a.is_dict() && b.is_dict()) {
    if (a.pairs().size() != b.pairs().size()) return false;
    return std::all_of(a.pairs().begin(), a.pairs().end(), [&](const auto& pair) {
      const Value* other = b.find(pair.first, budget);
      return other && equal(pair.second, *other, budget);
    });
  }
  return a.as_namespace() && a.as_namespace() == b.as_namespace();
}

bool less(const Value& a, const Value& b, Budget& budget) {
  budget.step();
  if (a.is_number() && b.is_number()) {
    return a.is_integral() && b.is_integral() ? a.as_int() < b.as_int()
                                              : a.as_double() < b.as_double();
  }
  // Bytes of UTF-8 are in the order of the code points.
  if (a.is_string() && b.is_string()) return a.str() < b.str();
  if (a.is_list() && b.is_list()) {
    const size_t n = std::min(a.items().size(), b.items().size());
    for (size_t i = 0; i < n; ++i) {
      if (!equal(a.items()[i], b.items()[i], budget)) {
        return less(a.items()[i], b.items()[i], budget);
      }
    }
    return a.items().size() < b.items().size();
  }
  throw_invalid("[chat template] expected values that can be ordered, got {} and {}", a.type_name(),
                b.type_name());
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  if (container.is_string()) {
    KEEL_REQUIRE(item.is_string(), "[chat template] expected a string left of 'in', got {}",
                 item.type_name());
    budget.step(static_cast<int64_t>(container.str().size() / 64));
    return container.str().find(item.str()) != std::string::npos;
  }
  if (container.is_dict()) return container.find(item, budget) != nullptr;
  if (container.is_list()) {
    return std::any_of(container.items().begin(), container.items().end(),
                       [&](const Value& v) { return equal(v, item, budget); });
  }
  if (container.is_undefined()) return false;
  throw_invalid("[chat template] expected a container right of 'in', got {}",
                container.type_name());
}

Values iterate(const Value& value, Budget& budget) {
  Values out;
  if (value.is_list()) {
    out = value.items();
  } else if (value.is_dict()) {
    for (const auto& pair : value.pairs()) out.push_back(pair.first);
  } else if (value.is_string()) {
    const std::string& s = value.str();
    for (size_t i = 0; i < s.size();) {
      const size_t n = unicode::decode(s.data() + i).num_bytes;
      out.emplace_back(s.substr(i, n));
      i += n;
      budget.bytes(sizeof(Value) + 32);
    }
  } else {
    KEEL_REQUIRE(value.is_undefined(), "[chat template] expected something to iterate over, got {}",
                 value.type_name());
  }
  budget.step(static_cast<int64_t>(out.size()));
  budget.bytes(out.size() * sizeof(Value));
  return out;
}

}  // namespace keel::jinja
