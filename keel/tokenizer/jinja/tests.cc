// Tests ("x is defined") and the arguments of calls.
#include <unordered_map>

#include "keel/tokenizer/jinja/context.h"

namespace keel::jinja {
namespace {

using Test = bool (*)(const Value&, const Arguments&, Context&);

const Value& other(const Arguments& args) { return args.need(0, "other", "test"); }

int64_t integer(const Value& v, const char* test) {
  KEEL_REQUIRE(v.is_integral(), "[chat template] expected an integer for '{}', got {}", test,
               v.type_name());
  return v.as_int();
}

bool same_as(const Value& v, const Arguments& args, Context& ctx) {
  const Value& o = other(args);
  return std::string_view(v.type_name()) == o.type_name() && equal(v, o, ctx.budget);
}

const std::unordered_map<std::string, Test>& tests() {
  using V = const Value&;
  using A = const Arguments&;
  static const auto eq = [](V v, A a, Context& c) { return equal(v, other(a), c.budget); };
  static const auto ne = [](V v, A a, Context& c) { return !equal(v, other(a), c.budget); };
  static const auto lt = [](V v, A a, Context& c) { return less(v, other(a), c.budget); };
  static const auto gt = [](V v, A a, Context& c) { return less(other(a), v, c.budget); };
  static const auto le = [](V v, A a, Context& c) {
    return less(v, other(a), c.budget) || equal(v, other(a), c.budget);
  };
  static const auto ge = [](V v, A a, Context& c) {
    return less(other(a), v, c.budget) || equal(v, other(a), c.budget);
  };
  static const std::unordered_map<std::string, Test> table = {
      {"defined", [](V v, A, Context&) { return !v.is_undefined(); }},
      {"undefined", [](V v, A, Context&) { return v.is_undefined(); }},
      {"none", [](V v, A, Context&) { return v.is_none(); }},
      {"string", [](V v, A, Context&) { return v.is_string(); }},
      {"mapping", [](V v, A, Context&) { return v.is_dict(); }},
      {"sequence", [](V v, A, Context&) { return v.is_string() || v.is_list() || v.is_dict(); }},
      {"iterable",
       [](V v, A, Context&) {
         return v.is_string() || v.is_list() || v.is_dict() || v.is_undefined();
       }},
      {"callable",
       [](V v, A, Context&) { return v.as_macro() != nullptr || v.as_function() != nullptr; }},
      {"boolean", [](V v, A, Context&) { return v.is_bool(); }},
      {"true", [](V v, A, Context&) { return v.is_bool() && v.truthy(); }},
      {"false", [](V v, A, Context&) { return v.is_bool() && !v.truthy(); }},
      {"number", [](V v, A, Context&) { return v.is_number(); }},
      {"integer", [](V v, A, Context&) { return v.is_int(); }},
      {"float", [](V v, A, Context&) { return v.is_float(); }},
      {"odd", [](V v, A, Context&) { return integer(v, "odd") % 2 != 0; }},
      {"even", [](V v, A, Context&) { return integer(v, "even") % 2 == 0; }},
      {"divisibleby",
       [](V v, A a, Context&) {
         const int64_t n = integer(other(a), "divisibleby");
         KEEL_REQUIRE(n != 0, "[chat template] expected no division by zero");
         return n == -1 || integer(v, "divisibleby") % n == 0;
       }},
      {"upper",
       [](V v, A, Context&) {
         return v.is_string() && upper(v.str()) == v.str() && lower(v.str()) != v.str();
       }},
      {"lower",
       [](V v, A, Context&) {
         return v.is_string() && lower(v.str()) == v.str() && upper(v.str()) != v.str();
       }},
      {"in", [](V v, A a, Context& c) { return contains(other(a), v, c.budget); }},
      {"sameas", same_as},
      {"eq", eq},
      {"equalto", eq},
      {"==", eq},
      {"ne", ne},
      {"!=", ne},
      {"lt", lt},
      {"lessthan", lt},
      {"<", lt},
      {"gt", gt},
      {"greaterthan", gt},
      {">", gt},
      {"le", le},
      {"<=", le},
      {"ge", ge},
      {">=", ge},
  };
  return table;
}

}  // namespace

bool is_test(const std::string& name) { return tests().contains(name); }

bool apply_test(const std::string& name, const Value& input, const Arguments& args, Context& ctx) {
  ctx.budget.step();
  const auto it = tests().find(name);
  KEEL_CHECK(it != tests().end(), "test '{}'", name);
  return it->second(input, args, ctx);
}

const Value* Arguments::get(size_t index, std::string_view name) const {
  if (index < positional.size()) return &positional[index];
  for (const auto& [key, value] : named) {
    if (key == name) return &value;
  }
  return nullptr;
}

Value Arguments::get_or(size_t index, std::string_view name, Value fallback) const {
  const Value* v = get(index, name);
  return v ? *v : std::move(fallback);
}

bool Arguments::flag(size_t index, std::string_view name, bool fallback) const {
  const Value* v = get(index, name);
  return v ? v->truthy() : fallback;
}

const Value& Arguments::need(size_t index, std::string_view name, std::string_view callee) const {
  const Value* v = get(index, name);
  KEEL_REQUIRE(v, "[chat template] expected argument '{}' for '{}', got none", name, callee);
  return *v;
}

const std::string& Arguments::need_string(size_t index, std::string_view name,
                                          std::string_view callee) const {
  const Value& v = need(index, name, callee);
  KEEL_REQUIRE(v.is_string(), "[chat template] expected a string as '{}' for '{}', got {}", name,
               callee, v.is_undefined() ? v.undefined_hint() : v.type_name());
  return v.str();
}

int64_t Arguments::get_int(size_t index, std::string_view name, std::string_view callee,
                           int64_t fallback) const {
  const Value* v = get(index, name);
  if (!v) return fallback;
  KEEL_REQUIRE(v->is_integral(), "[chat template] expected an integer as '{}' for '{}', got {}",
               name, callee, v->type_name());
  return v->as_int();
}

}  // namespace keel::jinja
