#include <fmt/format.h>

#include <algorithm>

#include "keel/base/config_suggest.h"
#include "keel/data/json_record.h"
#include "keel/data/schema.h"

namespace keel {
namespace {

// LaTeX that no parser can read: braces that do not match.
bool braces_match(const std::string& s) {
  int64_t depth = 0;
  for (size_t i = 0; i < s.size() && depth >= 0; ++i) {
    if (s[i] == '\\') {
      ++i;
    } else {
      depth += (s[i] == '{') - (s[i] == '}');
    }
  }
  return depth == 0;
}

std::string as_text(const OrderedJson& v) {
  return v.is_string() ? v.get<std::string>()
                       : v.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// verl's reward_model = {style, ground_truth}.
void read_reward_model(const OrderedJson& row, RowReport& report, Row& out) {
  const std::string path = "reward_model";
  const auto* model = require_value(row, "", path, report);
  if (!model) return;
  if (!model->is_object()) {
    return report.error("wrong_type", path,
                        fmt::format("expected an object, got {}", model->type_name()));
  }
  const std::vector<std::string> styles = {"rule", "model"};
  const auto* style = find_value(*model, "style");
  if (style &&
      (!style->is_string() || std::find(styles.begin(), styles.end(), *style) == styles.end())) {
    const auto name = as_text(*style);
    report.add("bad_value", FindingLevel::kWarn, path + ".style",
               fmt::format("'{}' is not rule or model", printable(name, 40)),
               nearest_name(name, styles));
  }
  const auto field = path + ".ground_truth";
  const auto* truth = require_value(*model, path, "ground_truth", report);
  if (!truth) return;
  if (truth->is_number() || truth->is_boolean()) {
    report.warn("wrong_type", field,
                fmt::format("expected a string, got {}; used as its text", truth->dump()));
  } else if (!truth->is_string()) {
    return report.error("wrong_type", field,
                        fmt::format("expected a string, got {}", truth->type_name()));
  }
  out.ground_truth = as_text(*truth);
  if (is_blank(out.ground_truth)) {
    return report.error("empty_text", field, "is empty: nothing could ever match it");
  }
  if (!braces_match(out.ground_truth)) {
    report.warn("bad_value", field,
                fmt::format("'{}' has unmatched braces; no rule can parse it",
                            printable(out.ground_truth, 60)));
  }
}

void read_verl_columns(const OrderedJson& row, const DataOptions& options, RowReport& report,
                       Row& out) {
  if (const auto* source = require_value(row, "", "data_source", report)) {
    if (const auto name = read_text_value(*source, "data_source", Empty::kError, report)) {
      out.data_source = *name;
      if (options.knows_data_source && !options.knows_data_source(*name)) {
        report.error("bad_value", "data_source",
                     fmt::format("no reward rule for '{}'; name a rule or a reward function",
                                 printable(*name, 60)));
      }
    }
  }
  if (options.ground_truth_key.empty()) read_reward_model(row, report, out);
  const auto* extra = find_value(row, "extra_info");
  if (extra && !extra->is_object()) {
    report.warn("wrong_type", "extra_info",
                fmt::format("expected an object, got {}", extra->type_name()));
  }
}

// The reference answer of a row that is not verl's; returns the key it was found under.
std::string read_ground_truth(const OrderedJson& row, const DataOptions& options, RowReport& report,
                              Row& out) {
  std::string key = options.ground_truth_key;
  if (key.empty()) {
    for (const auto* k : {"ground_truth", "answer", "solution", "target"}) {
      if (key.empty() && find_value(row, k)) key = k;
    }
    if (key.empty()) return key;
  }
  const auto* value = require_value(row, "", key, report);
  if (!value) return key;
  out.ground_truth = as_text(*value);
  if (!options.ground_truth_key.empty() && is_blank(out.ground_truth)) {
    report.error("empty_text", key, "is empty: nothing could ever match it");
  }
  return key;
}

// A message list that was stored as JSON text, or nullopt.
std::optional<OrderedJson> parse_stored_list(const OrderedJson& value) {
  if (!value.is_string()) return std::nullopt;
  const auto& s = value.get_ref<const std::string&>();
  if (s.find_first_not_of(" \t\r\n") == s.npos || s[s.find_first_not_of(" \t\r\n")] != '[')
    return std::nullopt;
  OrderedJson list;
  std::vector<Issue> issues;
  constexpr int kDepth = 32;
  if (!parse_json_record(s, kDepth, list, issues) || !list.is_array() || list.empty())
    return std::nullopt;
  const bool messages = std::all_of(list.begin(), list.end(), [](const OrderedJson& m) {
    return m.is_object() && m.contains("role");
  });
  return messages ? std::optional(std::move(list)) : std::nullopt;
}

void read_prompt(const OrderedJson& row, const std::string& key, SchemaState& state,
                 RowReport& report, Row& out) {
  const auto* value = require_value(row, "", key, report);
  if (!value) return;
  auto stored = parse_stored_list(*value);
  if (stored) {
    report.warn("wrong_type", key, "the message list was stored as a JSON string; it was parsed");
    value = &*stored;
  }
  if (value->is_string() || value->is_array()) {
    const std::string form = value->is_string() ? "a string" : "a message list";
    if (state.prompt_form.empty()) state.prompt_form = form;
    if (form != state.prompt_form) {
      report.warn("schema_mismatch", key,
                  fmt::format("is {}; the rows before have {}", form, state.prompt_form));
    }
  }
  auto content = read_content(*value, key, Empty::kError, report);
  if (!content) return;
  out.prompt = std::move(*content);
  if (out.prompt.is_chat()) check_prompt_turns(out.prompt.messages, key, report);
}

}  // namespace

void keep_extra(const OrderedJson& row, std::initializer_list<std::string> used, Row& out) {
  for (const auto& [key, value] : row.items()) {
    if (std::find(used.begin(), used.end(), key) != used.end() || value.is_binary()) continue;
    if (key == "tools" && !value.is_null()) {
      auto tools = plain_json(value);
      if (tools.is_string()) tools = Json::parse(tools.get<std::string>(), nullptr, false);
      out.tools = tools.is_discarded() ? Json(nullptr) : std::move(tools);
    } else {
      out.extra[key] = plain_json(value);
    }
  }
}

bool read_rl_row(const OrderedJson& row, const DataOptions& options, SchemaState& state,
                 RowReport& report, Row& out) {
  read_prompt(row, options.prompt_key, state, report, out);
  const bool verl = row.contains("reward_model") || row.contains("data_source");
  state.file_is_verl |= verl;
  std::string truth_key = "reward_model";
  if (state.file_is_verl) read_verl_columns(row, options, report, out);
  if (!state.file_is_verl || !options.ground_truth_key.empty()) {
    truth_key = read_ground_truth(row, options, report, out);
  }
  keep_extra(row, {options.prompt_key, "data_source", truth_key}, out);
  return !report.failed();
}

}  // namespace keel
