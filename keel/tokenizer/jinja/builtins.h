// Filters, tests, functions and methods that templates may call.
#pragma once

#include <string>
#include <utility>

#include "keel/tokenizer/jinja/value.h"

namespace keel::jinja {

class Context;

// Evaluated arguments of one call.
struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;

  // Argument `index`, also known as `name`; null if it was not given.
  const Value* get(size_t index, std::string_view name) const;
  Value get_or(size_t index, std::string_view name, Value fallback) const;
  bool flag(size_t index, std::string_view name, bool fallback) const;
  // Throw Error(kInvalid) for a missing argument or one of another type; `callee` names the call.
  const Value& need(size_t index, std::string_view name, std::string_view callee) const;
  const std::string& need_string(size_t index, std::string_view name,
                                 std::string_view callee) const;
  int64_t get_int(size_t index, std::string_view name, std::string_view callee,
                  int64_t fallback) const;
};

bool is_filter(const std::string& name);
bool is_test(const std::string& name);

Value apply_filter(const std::string& name, const Value& input, const Arguments& args,
                   Context& ctx);
bool apply_test(const std::string& name, const Value& input, const Arguments& args, Context& ctx);
Value call_function(Function function, const Arguments& args, Context& ctx);

// A method of a string, list, dict or loop; false if there is no such method.
bool call_method(const Value& object, const std::string& name, const Arguments& args, Context& ctx,
                 Value& result);

// Python's str.upper and so on, for filters and methods.
std::string upper(const std::string& s);
std::string lower(const std::string& s);
std::string capitalize(const std::string& s);
std::string title(const std::string& s);
enum class Side { kBoth, kLeft, kRight };
// chars: null strips white space.
std::string strip(const std::string& s, const std::string* chars, Side side);
// count < 0: all.
std::string replace(const std::string& s, const std::string& from, const std::string& to,
                    int64_t count, Budget& budget);

}  // namespace keel::jinja
