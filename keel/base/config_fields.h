// Configuration is plain structs with one visitor each:
//
//   struct RolloutConfig {
//     int64_t n = 8;
//     template <class V> void visit(V& v) {
//       v(n, "n", "answers sampled for each prompt").range(1, 1 << 20);
//       v.section("sampling", sampling, "how a token is drawn");
//     }
//     void validate(ConfigChecks& check) const;  // optional: rules over several fields
//   };
//
// ConfigFields is the visitor: it lists the fields with their paths; config.h does the rest.
// ConfigField types: bool, int64_t, double, std::string, enums (see EnumName), std::vector of
// int64_t, double or std::string, and std::optional of the first five (null in YAML).
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "keel/base/config_finding.h"
#include "keel/base/error.h"

namespace keel {

// An enum becomes a field type by a function that is found beside it:
//   constexpr auto enum_names(LossMode) {
//     return std::to_array<EnumName<LossMode>>({{LossMode::kPpoClip, "ppo_clip"}, ...});
//   }
template <class E>
struct EnumName {
  E value;
  const char* name;
};

// The name of an enum value that has enum_names.
template <class E>
std::string enum_name(E value) {
  for (const auto& entry : enum_names(E{})) {
    if (entry.value == value) return entry.name;
  }
  KEEL_CHECK(false, "enum value {} has no name", static_cast<int64_t>(value));
}

enum class ConfigType { kBool, kInt, kReal, kText, kChoice, kIntList, kRealList, kTextList };

// monostate = null. Choices travel as text.
using ConfigValue =
    std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<int64_t>,
                 std::vector<double>, std::vector<std::string>>;

// One field of a config struct. The setters below are chained in visit().
struct ConfigField {
  std::string path;  // "actor.optim.lr"
  std::string help;
  ConfigType type = ConfigType::kText;
  bool nullable = false;  // std::optional
  bool required = false;
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;                                 // min itself is out of range
  int64_t int_min = std::numeric_limits<int64_t>::min();  // what the C++ type holds
  int64_t int_max = std::numeric_limits<int64_t>::max();
  std::vector<std::string> choices;
  std::vector<std::string> other_names;
  std::function<ConfigValue()> get;
  std::function<void(const ConfigValue&)> set;

  ConfigField& range(double low, double high) { return min = low, max = high, *this; }  // inclusive
  ConfigField& at_least(double low) { return min = low, *this; }
  ConfigField& above(double low) { return min = low, above_min = true, *this; }
  // Last parts of keys that other programs use for this; only for "try ...".
  ConfigField& also_known_as(std::vector<std::string> names) {
    return other_names = std::move(names), *this;
  }
  ConfigField& must_be_given() { return required = true, *this; }  // no default makes sense
};

struct ConfigSection {
  std::string path;
  std::string help;
};

// Given to validate(): adds findings with the right path, file and line.
class ConfigChecks {
 public:
  // source and line of every value that was given, by full path
  struct Origin {
    std::string source;
    int line = 0;
  };
  using Origins = std::map<std::string, Origin>;

  ConfigChecks(std::string prefix, const Origins& origins, ConfigFindings& findings)
      : prefix_(std::move(prefix)), origins_(origins), findings_(findings) {}

  // fields: paths relative to the struct; the first one is blamed. Says nothing if one of them is
  // already known to be wrong, because it holds its default then.
  void error(const std::string& kind, std::initializer_list<std::string> fields,
             const std::string& expected, const std::string& got, const std::string& hint = "",
             const std::string& suggest = "");
  void warn(const std::string& kind, std::initializer_list<std::string> fields,
            const std::string& expected, const std::string& got, const std::string& hint = "");
  // The file or an override sets it.
  bool given(const std::string& field) const;

  // missing_file with the nearest name in its folder, unless the path exists.
  void require_file(const std::string& field, const std::string& path);

 private:
  void add(ConfigFinding::Level level, const std::string& kind,
           std::initializer_list<std::string> fields, const std::string& expected,
           const std::string& got, const std::string& hint, const std::string& suggest);
  std::string full(const std::string& field) const;

  std::string prefix_;  // "" or "rollout."
  const Origins& origins_;
  ConfigFindings& findings_;
};

template <class C>
concept HasValidate = requires(const C& c, ConfigChecks& checks) {
  c.validate(checks);
};

// Refers to the visited struct, which must outlive it.
class ConfigFields {
 public:
  using Hook = std::function<void(const ConfigChecks::Origins&, ConfigFindings&)>;

  template <class T>
  ConfigField& operator()(T& value, const std::string& name, const std::string& help);

  template <class S>
  void section(const std::string& name, S& s, const std::string& help = "") {
    const std::string outer = prefix_;
    sections_.push_back({outer + name, help});
    prefix_ += name + ".";
    enter(s);
    prefix_ = outer;
  }

  // Visits `c` and notes its validate() to be run after those of its sections.
  template <class C>
  void enter(C& c) {
    c.visit(*this);
    if constexpr (HasValidate<C>) {
      hooks_.push_back([&c, prefix = prefix_](const ConfigChecks::Origins& o, ConfigFindings& f) {
        ConfigChecks checks(prefix, o, f);
        c.validate(checks);
      });
    }
  }

  const std::deque<ConfigField>& fields() const { return fields_; }
  const std::vector<ConfigSection>& sections() const { return sections_; }
  const std::vector<Hook>& hooks() const { return hooks_; }
  const ConfigField* find(const std::string& path) const;
  bool is_section(const std::string& path) const;
  // The key that an unknown one most likely meant, "" if none is near.
  std::string suggest(const std::string& path) const;

 private:
  ConfigField& add(ConfigField field);

  std::string prefix_;
  std::deque<ConfigField> fields_;  // deque: visit() keeps references while more are added
  std::map<std::string, size_t> index_;
  std::vector<ConfigSection> sections_;
  std::vector<Hook> hooks_;
};

namespace config_internal {

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

template <class T>
constexpr bool is_integer = std::is_integral_v<T> && !std::is_same_v<T, bool>;

// clang-format off: a chain reads best one line a type
template <class T>
constexpr ConfigType field_type() {
  if constexpr (std::is_enum_v<T>)
    return ConfigType::kChoice;
  else if constexpr (std::is_same_v<T, bool>)
    return ConfigType::kBool;
  else if constexpr (is_integer<T>)
    return ConfigType::kInt;
  else if constexpr (std::is_floating_point_v<T>)
    return ConfigType::kReal;
  else if constexpr (std::is_same_v<T, std::string>)
    return ConfigType::kText;
  else if constexpr (std::is_same_v<T, std::vector<int64_t>>)
    return ConfigType::kIntList;
  else if constexpr (std::is_same_v<T, std::vector<double>>)
    return ConfigType::kRealList;
  else {
    static_assert(std::is_same_v<T, std::vector<std::string>>, "not a field type of config.h");
    return ConfigType::kTextList;
  }
}

template <class T>
ConfigValue to_value(const T& value) {
  if constexpr (std::is_enum_v<T>)
    return enum_name(value);
  else if constexpr (is_integer<T>)
    return static_cast<int64_t>(value);
  else if constexpr (std::is_same_v<T, float>)
    return std::stod(fmt::format("{}", value));
  else
    return value;
}

template <class T>
void assign(T& out, const ConfigValue& value) {
  if constexpr (std::is_enum_v<T>) {
    for (const auto& entry : enum_names(T{})) {
      if (std::get<std::string>(value) == entry.name) out = entry.value;
    }
  } else if constexpr (is_integer<T>) {
    out = static_cast<T>(std::get<int64_t>(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    out = static_cast<T>(std::get<double>(value));
  } else {
    out = std::get<T>(value);
  }
}
// clang-format on

// What depends on the type of a field alone.
template <class T>
void describe_field(ConfigField& field) {
  field.type = field_type<T>();
  if constexpr (std::is_enum_v<T>) {
    for (const auto& entry : enum_names(T{})) field.choices.push_back(entry.name);
  } else if constexpr (is_integer<T>) {
    using Limits = std::numeric_limits<T>;
    field.int_min = static_cast<int64_t>(Limits::min());
    if (sizeof(T) < sizeof(int64_t)) field.int_max = static_cast<int64_t>(Limits::max());
    if (std::is_unsigned_v<T>) field.min = 0;
  }
}

}  // namespace config_internal

template <class T>
ConfigField& ConfigFields::operator()(T& value, const std::string& name, const std::string& help) {
  namespace ci = config_internal;
  ConfigField field;
  field.path = prefix_ + name;
  field.help = help;
  if constexpr (ci::IsOptional<T>::value) {
    using Inner = typename T::value_type;
    ci::describe_field<Inner>(field);
    field.nullable = true;
    field.get = [&value] { return value ? ci::to_value(*value) : ConfigValue(); };
    field.set = [&value](const ConfigValue& v) {
      if (std::holds_alternative<std::monostate>(v)) {
        value.reset();
      } else {
        ci::assign(value.emplace(), v);
      }
    };
  } else {
    ci::describe_field<T>(field);
    field.get = [&value] { return ci::to_value(value); };
    field.set = [&value](const ConfigValue& v) { ci::assign(value, v); };
  }
  return add(std::move(field));
}

}  // namespace keel
