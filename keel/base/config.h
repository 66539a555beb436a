// From a visited struct (config_fields.h): read YAML and overrides, report every fault at once,
// print, dump and hash. Keys are dotted paths.
//
// Kinds of finding: unknown_key wrong_type out_of_range bad_value ambiguous_number ambiguous_bool
// missing_key duplicate_key bad_override unresolved_interpolation yaml_syntax encoding bad_tag
// too_deep too_large empty_file, and what validate() adds: missing_file conflict not_divisible
// suspicious_value ...
//
// YAML: 1.2 without its traps. Bools are true/false (yes, on, off ... are refused); 017, 17:04 and
// 1_024 are refused, 1e-6 is a number; null only where a field allows it; a single word is a list
// of one; top-level keys that start with "x-" are notes and may carry anchors; ??? marks a value
// that the user must give.
// Interpolation as in OmegaConf: ${a.b} (absolute), ${.b} and ${..b} (relative to the section),
// ${oc.env:NAME} or ${env:NAME} with an optional ",default"; \${ is a literal ${.
// Overrides: a.b=c, lists [x,y], 'quoted text', null; +a.b=c is the same for a known key (there is
// no way to add unknown ones); ~a.b puts the default back.
#pragma once

#include <string>
#include <vector>

#include "keel/base/config_fields.h"
#include "keel/base/json.h"

namespace keel {

struct ConfigInput {
  std::string name;                    // for messages, e.g. "grpo.yaml"; "" = there is no file
  std::string text;                    // YAML
  std::vector<std::string> overrides;  // in order of the command line
};

// Throws Error(kInvalid) if the file cannot be read. path "" = overrides only.
ConfigInput read_config_input(const std::string& path, std::vector<std::string> overrides);

struct ConfigReport {
  ConfigFindings findings;
  ConfigChecks::Origins origins;  // of every value that is not a default
};

// The non-template part of load_config: fills the struct behind `fields`.
ConfigReport bind_config(const ConfigFields& fields, const ConfigInput& input);

template <class C>
ConfigFields config_fields(C& config) {
  ConfigFields fields;
  fields.enter(config);
  return fields;
}

// Sets `config` to its defaults, then to what `input` says. Faulty values keep their defaults.
// Never throws for faults of the input: see findings.throw_if_errors().
template <class C>
ConfigReport load_config(C& config, const ConfigInput& input) {
  config = C{};
  return bind_config(config_fields(config), input);
}

struct ConfigOption {
  std::string path, type, help;  // type: "whole number, 1 to 64"
  std::string value, fallback;   // as YAML; fallback = the default
  std::string origin;            // "default", "grpo.yaml:17", "override"
};

std::vector<ConfigOption> list_options(const ConfigFields& fields, const ConfigFields& defaults,
                                       const ConfigChecks::Origins& origins);

template <class C>
std::vector<ConfigOption> config_options(C& config, const ConfigChecks::Origins& origins = {}) {
  C fresh{};
  return list_options(config_fields(config), config_fields(fresh), origins);
}

// All values as YAML that reads back to the same values.
std::string dump_yaml(const ConfigFields& fields);
// Nested object with all values.
OrderedJson dump_json(const ConfigFields& fields);
// Of all values, independent of field order and machine; 16 hex digits.
std::string config_hash(const ConfigFields& fields);

// One value as YAML text (flow style).
std::string value_to_yaml(const ConfigValue& value);
// "a whole number from 1 to 64", for messages and help.
std::string describe_type(const ConfigField& field);

}  // namespace keel
