// Values of the template language, with Python's rules for truth, text, order and equality.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "keel/base/error.h"
#include "keel/base/json.h"

namespace keel::jinja {

class Value;
struct MacroNode;

// What one rendering may use up. Every loop over values or bytes pays here, so a template cannot
// hang the process or fill its memory.
struct Budget {
  int64_t steps_left;
  int64_t bytes_left;

  void step(int64_t n = 1) {
    steps_left -= n;
    KEEL_REQUIRE(steps_left >= 0, "[chat template] expected an end, got a template that runs on");
  }
  void bytes(size_t n) {
    bytes_left -= static_cast<int64_t>(n);
    KEEL_REQUIRE(bytes_left >= 0, "[chat template] expected less text; does it double in a loop?");
  }
};

struct Undefined {
  std::string hint;  // "'x' is undefined"
};
struct None {};
struct List;
struct Dict;
struct Loop;
struct Namespace;
enum class Function { kRange, kNamespace, kDict, kRaise, kStrftimeNow };

// Containers are immutable (as in transformers' sandbox) and shared; only a Namespace changes.
class Value {
 public:
  Value() : data_(Undefined{}) {}
  Value(Undefined u) : data_(std::move(u)) {}
  Value(None n) : data_(n) {}
  Value(bool b) : data_(b) {}
  Value(int64_t i) : data_(i) {}
  Value(double d) : data_(d) {}
  Value(std::string s) : data_(std::make_shared<const std::string>(std::move(s))) {}
  Value(const char* s) : Value(std::string(s)) {}
  Value(Function f) : data_(f) {}
  Value(const MacroNode* m) : data_(m) {}
  Value(Namespace* n) : data_(n) {}
  Value(std::shared_ptr<const Loop> l) : data_(std::move(l)) {}

  // Throw Error(kInvalid) if the nesting is deeper than kMaxDepth.
  // tuple: it prints with round brackets and does not equal a list.
  static Value list(std::vector<Value> items, bool tuple = false);
  static Value dict(std::vector<std::pair<Value, Value>> items);
  static Value from_json(const OrderedJson& json);

  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<None>(); }
  bool is_bool() const { return is<bool>(); }
  bool is_int() const { return is<int64_t>(); }
  bool is_float() const { return is<double>(); }
  bool is_number() const { return is_bool() || is_int() || is_float(); }
  bool is_string() const { return is<std::shared_ptr<const std::string>>(); }
  bool is_list() const { return is<std::shared_ptr<const List>>(); }
  bool is_dict() const { return is<std::shared_ptr<const Dict>>(); }
  bool is_loop() const { return is<std::shared_ptr<const Loop>>(); }

  // The caller has checked the kind.
  const std::string& str() const { return *std::get<std::shared_ptr<const std::string>>(data_); }
  const std::vector<Value>& items() const;
  const std::vector<std::pair<Value, Value>>& pairs() const;
  const Loop& loop() const { return *std::get<std::shared_ptr<const Loop>>(data_); }
  const std::string& undefined_hint() const { return std::get<Undefined>(data_).hint; }

  // Null unless it is one.
  Namespace* as_namespace() const { return get_or_null<Namespace*>(); }
  const MacroNode* as_macro() const { return get_or_null<const MacroNode*>(); }
  const Function* as_function() const { return std::get_if<Function>(&data_); }

  // bool counts as 0 or 1.
  int64_t as_int() const { return is_bool() ? std::get<bool>(data_) : std::get<int64_t>(data_); }
  double as_double() const {
    return is_float() ? std::get<double>(data_) : static_cast<double>(as_int());
  }
  bool is_integral() const { return is_bool() || is_int(); }

  bool truthy() const;
  bool is_tuple() const;
  const char* type_name() const;  // Python's
  int depth() const;
  // The value for `key`, or null. A dict only.
  const Value* find(const Value& key, Budget& budget) const;

  static constexpr int kMaxDepth = 200;

 private:
  template <class T>
  bool is() const {
    return std::holds_alternative<T>(data_);
  }
  template <class T>
  T get_or_null() const {
    const T* p = std::get_if<T>(&data_);
    return p ? *p : nullptr;
  }

  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const std::string>,
               std::shared_ptr<const List>, std::shared_ptr<const Dict>,
               std::shared_ptr<const Loop>, Namespace*, const MacroNode*, Function>
      data_;
};

using Values = std::vector<Value>;
using Pairs = std::vector<std::pair<Value, Value>>;

struct List {
  Values items;
  int depth;
  bool tuple;
};

struct Dict {
  Pairs items;
  int depth;
};

// The `loop` variable: a snapshot of one iteration.
struct Loop {
  Value items;  // a list
  size_t index = 0;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
};

bool equal(const Value& a, const Value& b, Budget& budget);
// a < b; throws for kinds that Python does not order.
bool less(const Value& a, const Value& b, Budget& budget);
bool contains(const Value& container, const Value& item, Budget& budget);

// What a for loop visits: items, keys, code points. Throws for what is not iterable.
Values iterate(const Value& value, Budget& budget);

// str() and repr().
std::string to_text(const Value& value, Budget& budget);
std::string to_repr(const Value& value, Budget& budget);
std::string double_text(double value);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  int indent = -1;  // < 0: one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
std::string to_json(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace keel::jinja
