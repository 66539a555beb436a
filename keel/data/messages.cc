// Conversations: message lists, ShareGPT turns, and the order of turns.
#include <fmt/format.h>

#include <array>
#include <set>

#include "keel/base/config_suggest.h"
#include "keel/data/json_record.h"
#include "keel/data/row_report.h"

namespace keel {
namespace {

const std::vector<std::string> kRoles = {"system",    "developer", "user",
                                         "assistant", "tool",      "function"};

std::optional<std::string> read_role(const OrderedJson& message, const std::string& path,
                                     const std::string& key, const std::vector<std::string>& known,
                                     RowReport& report) {
  const auto* v = require_value(message, path, key, report);
  if (!v) return std::nullopt;
  const auto field = join_path(path, key);
  const auto role = read_text_value(*v, field, Empty::kError, report);
  if (!role) return std::nullopt;
  for (const auto& k : known) {
    if (k == *role) return role;
  }
  report.add("unknown_role", FindingLevel::kError, field,
             fmt::format("'{}' is not one of {}", printable(*role, 40), fmt::join(known, ", ")),
             nearest_name(*role, known));
  return std::nullopt;
}

// Text parts joined; only text can be fed to a text model.
std::optional<std::string> read_parts(const OrderedJson& parts, const std::string& path,
                                      RowReport& report) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto at = fmt::format("{}[{}]", path, i);
    if (!parts[i].is_object()) {
      report.error("wrong_type", at,
                   fmt::format("expected a content part, got {}", parts[i].type_name()));
      return std::nullopt;
    }
    const auto* type = require_value(parts[i], at, "type", report);
    if (!type) return std::nullopt;
    if (!type->is_string() || *type != "text") {
      report.error("wrong_type", at + ".type",
                   fmt::format("content part of type {}; only \"text\" can be used",
                               printable(type->dump(), 40)));
      return std::nullopt;
    }
    const auto* part = require_value(parts[i], at, "text", report);
    if (!part) return std::nullopt;
    const auto s = read_text_value(*part, at + ".text", Empty::kAllowed, report);
    if (!s) return std::nullopt;
    text += *s;
  }
  return text;
}

void check_tool_calls(const OrderedJson& calls, const std::string& path, RowReport& report) {
  for (size_t i = 0; i < calls.size(); ++i) {
    const auto* function = find_value(calls[i], "function");
    const auto* arguments = function ? find_value(*function, "arguments") : nullptr;
    if (arguments && arguments->is_string() &&
        !Json::accept(arguments->get_ref<const std::string&>())) {
      report.warn("json_syntax", fmt::format("{}[{}].function.arguments", path, i),
                  "the string is not JSON");
    }
  }
}

std::optional<Message> read_message(const OrderedJson& m, const std::string& path,
                                    RowReport& report) {
  if (!m.is_object()) {
    report.error("wrong_type", path,
                 fmt::format("expected a message object, got {}", m.type_name()));
    return std::nullopt;
  }
  const auto role = read_role(m, path, "role", kRoles, report);
  Message out;
  const auto* calls = find_value(m, "tool_calls");
  const bool has_calls = calls && calls->is_array() && !calls->empty();
  if (has_calls) check_tool_calls(*calls, path + ".tool_calls", report);
  if (!has_calls || find_value(m, "content")) {
    const auto* content = require_value(m, path, "content", report);
    if (!content) return std::nullopt;
    const auto at = path + ".content";
    const auto text = content->is_array() ? read_parts(*content, at, report)
                                          : read_text_value(*content, at, Empty::kAllowed, report);
    if (!text) return std::nullopt;
    out.content = *text;
  }
  if (!role) return std::nullopt;
  out.role = *role;
  const auto* weight = find_value(m, "weight");
  out.trained =
      out.role == "assistant" && !(weight && weight->is_number() && weight->get<double>() == 0);
  for (const auto& [key, value] : m.items()) {
    if (key == "role" || key == "content" || key == "weight" || value.is_null()) continue;
    out.extra[key] = plain_json(value);
  }
  return out;
}

struct FromName {
  const char* from;
  const char* role;
};

constexpr std::array<FromName, 9> kFrom = {{{"human", "user"},
                                            {"user", "user"},
                                            {"gpt", "assistant"},
                                            {"assistant", "assistant"},
                                            {"chatgpt", "assistant"},
                                            {"system", "system"},
                                            {"tool", "tool"},
                                            {"observation", "tool"},
                                            {"function_call", "assistant"}}};

std::optional<Message> read_sharegpt_turn(const OrderedJson& turn, const std::string& path,
                                          RowReport& report) {
  if (!turn.is_object()) {
    report.error("wrong_type", path,
                 fmt::format("expected a turn object, got {}", turn.type_name()));
    return std::nullopt;
  }
  std::vector<std::string> known;
  for (const auto& f : kFrom) known.push_back(f.from);
  const auto from = read_role(turn, path, "from", known, report);
  const auto* value = require_value(turn, path, "value", report);
  if (!value) return std::nullopt;
  const auto text = read_text_value(*value, path + ".value", Empty::kAllowed, report);
  if (!from || !text) return std::nullopt;
  Message m;
  for (const auto& f : kFrom) {
    if (*from == f.from) m.role = f.role;
  }
  m.trained = m.role == "assistant";
  if (*from != "function_call") {
    m.content = *text;
    return m;
  }
  auto call = Json::parse(*text, nullptr, false);
  if (call.is_discarded()) {
    report.warn("json_syntax", path + ".value", "the function call is not JSON");
    m.content = *text;
    return m;
  }
  m.extra["tool_calls"] = Json::array({Json{{"type", "function"}, {"function", std::move(call)}}});
  return m;
}

using TurnReader = std::optional<Message> (*)(const OrderedJson&, const std::string&, RowReport&);

std::optional<std::vector<Message>> read_list(const OrderedJson& list, const std::string& path,
                                              TurnReader read_turn, RowReport& report) {
  if (!list.is_array()) {
    report.error("wrong_type", path,
                 fmt::format("expected a list of messages, got {}", list.type_name()));
    return std::nullopt;
  }
  if (list.empty()) {
    report.error("empty_list", path, "the message list is empty");
    return std::nullopt;
  }
  std::vector<Message> out;
  bool ok = true;
  for (size_t i = 0; i < list.size(); ++i) {
    auto m = read_turn(list[i], fmt::format("{}[{}]", path, i), report);
    ok &= m.has_value();
    if (m) out.push_back(std::move(*m));
  }
  if (!ok) return std::nullopt;
  return out;
}

}  // namespace

Json to_json(const Message& m) {
  Json j = m.extra.is_object() ? m.extra : Json::object();
  j["role"] = m.role;
  j["content"] = m.content;
  return j;
}

Json to_json(const std::vector<Message>& messages) {
  auto list = Json::array();
  for (const auto& m : messages) list.push_back(to_json(m));
  return list;
}

std::optional<std::vector<Message>> read_messages(const OrderedJson& list, const std::string& path,
                                                  RowReport& report) {
  return read_list(list, path, read_message, report);
}

std::optional<std::vector<Message>> read_sharegpt(const OrderedJson& list, const std::string& path,
                                                  RowReport& report) {
  return read_list(list, path, read_sharegpt_turn, report);
}

void check_turns(const std::vector<Message>& messages, const std::string& path, RowReport& report) {
  std::set<std::string> call_ids;
  bool called = false;
  for (size_t i = 0; i < messages.size(); ++i) {
    const auto& m = messages[i];
    const auto at = fmt::format("{}[{}]", path, i);
    if (i > 0 && m.role == "system") {
      report.warn("bad_turn_order", at + ".role", "a system turn that is not the first turn");
    }
    if (i > 0 && m.role == "user" && messages[i - 1].role == "user") {
      report.warn("bad_turn_order", at + ".role",
                  "two user turns in a row; many chat templates refuse this");
    }
    if (m.extra.contains("tool_calls")) {
      called = true;
      for (const auto& call : m.extra["tool_calls"]) {
        if (call.is_object() && call.contains("id") && call["id"].is_string())
          call_ids.insert(call["id"]);
      }
    }
    if (m.role != "tool") continue;
    const auto id = m.extra.find("tool_call_id");
    if (!called) {
      report.warn("bad_turn_order", at, "a tool result without a tool call before it");
    } else if (m.extra.is_object() && id != m.extra.end() && id->is_string() &&
               !call_ids.contains(*id)) {
      report.warn("bad_turn_order", at + ".tool_call_id", "names a call that was not made");
    }
  }
}

void check_prompt_turns(const std::vector<Message>& messages, const std::string& path,
                        RowReport& report) {
  check_turns(messages, path, report);
  bool only_assistant = true;
  for (const auto& m : messages) only_assistant &= m.role == "assistant";
  if (only_assistant) {
    report.error("bad_turn_order", path, "the prompt has only assistant turns");
  } else if (messages.back().role == "assistant") {
    report.warn("bad_turn_order", path,
                "the prompt ends with an assistant turn: no turn is left to generate");
  }
}

void check_training_turns(const std::vector<Message>& messages, const std::string& path,
                          RowReport& report) {
  check_turns(messages, path, report);
  size_t assistant = 0, trained = 0, last = 0;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role == "assistant") {
      ++assistant;
      last = i;
    }
    trained += messages[i].trained;
  }
  if (assistant == 0)
    return report.error("bad_turn_order", path, "no assistant turn: there is nothing to learn");
  if (trained == 0) {
    report.warn("empty_text", fmt::format("{}[{}].weight", path, last),
                "all assistant turns have weight 0: nothing is learnt from this row");
  }
  if (messages.size() == 1) report.warn("bad_turn_order", path, "only an assistant turn");
}

}  // namespace keel
