#include <fmt/format.h>

#include <algorithm>

#include "keel/data/schema.h"

namespace keel {
namespace {

// Cuts a conversation in front of its first answer.
void split_conversation(std::vector<Message> messages, Row& out) {
  const auto first = std::find_if(messages.begin(), messages.end(),
                                  [](const Message& m) { return m.role == "assistant"; });
  out.completion.messages.assign(std::make_move_iterator(first),
                                 std::make_move_iterator(messages.end()));
  messages.erase(first, messages.end());
  out.prompt.messages = std::move(messages);
}

void read_conversation(const OrderedJson& row, const std::string& key, bool sharegpt,
                       RowReport& report, Row& out) {
  const auto* list = require_value(row, "", key, report);
  if (!list) return;
  auto messages = sharegpt ? read_sharegpt(*list, key, report) : read_messages(*list, key, report);
  if (!messages) return;
  check_training_turns(*messages, key, report);
  const auto* system = sharegpt ? find_value(row, "system") : nullptr;
  if (system) {
    const auto text = read_text_value(*system, "system", Empty::kAllowed, report);
    if (text && !text->empty())
      messages->insert(messages->begin(), {"system", *text, false, nullptr});
  }
  split_conversation(std::move(*messages), out);
}

void read_messages_row(const OrderedJson& row, RowReport& report, Row& out) {
  read_conversation(row, "messages", false, report, out);
  keep_extra(row, {"messages"}, out);
}

void read_sharegpt_row(const OrderedJson& row, RowReport& report, Row& out) {
  read_conversation(row, "conversations", true, report, out);
  keep_extra(row, {"conversations", "system"}, out);
}

std::string optional_text(const OrderedJson& row, const std::string& key, RowReport& report) {
  const auto* v = find_value(row, key);
  return v ? read_text_value(*v, key, Empty::kAllowed, report).value_or("") : "";
}

void read_history(const OrderedJson& row, RowReport& report, std::vector<Message>& messages) {
  const auto* history = find_value(row, "history");
  if (!history) return;
  if (!history->is_array())
    return report.error("wrong_type", "history", "expected a list of [question, answer]");
  for (size_t i = 0; i < history->size(); ++i) {
    const auto& pair = (*history)[i];
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
      return report.error("wrong_type", fmt::format("history[{}]", i),
                          "expected [question, answer]");
    }
    messages.push_back({"user", pair[0].get<std::string>(), false, nullptr});
    messages.push_back({"assistant", pair[1].get<std::string>(), false, nullptr});
  }
}

// instruction, input, output, system, history (Alpaca and LLaMA-Factory).
void read_alpaca_row(const OrderedJson& row, RowReport& report, Row& out) {
  const auto* instruction = require_value(row, "", "instruction", report);
  const auto* output = require_value(row, "", "output", report);
  const auto question = instruction
                            ? read_text_value(*instruction, "instruction", Empty::kError, report)
                            : std::nullopt;
  const auto answer =
      output ? read_text_value(*output, "output", Empty::kError, report) : std::nullopt;
  const auto input = optional_text(row, "input", report);
  auto& messages = out.prompt.messages;
  const auto system = optional_text(row, "system", report);
  if (!system.empty()) messages.push_back({"system", system, false, nullptr});
  read_history(row, report, messages);
  if (question)
    messages.push_back(
        {"user", input.empty() ? *question : *question + "\n" + input, false, nullptr});
  if (answer) out.completion.messages.push_back({"assistant", *answer, true, nullptr});
  keep_extra(row, {"instruction", "input", "output", "system", "history"}, out);
}

void read_text_row(const OrderedJson& row, RowReport& report, Row& out) {
  const auto* text = require_value(row, "", "text", report);
  if (text)
    out.completion.text = read_text_value(*text, "text", Empty::kError, report).value_or("");
  keep_extra(row, {"text"}, out);
}

void read_prompt_completion_row(const OrderedJson& row, RowReport& report, Row& out) {
  const auto* prompt = require_value(row, "", "prompt", report);
  const auto* completion = require_value(row, "", "completion", report);
  auto p = prompt ? read_content(*prompt, "prompt", Empty::kWarn, report) : std::nullopt;
  auto c =
      completion ? read_content(*completion, "completion", Empty::kError, report) : std::nullopt;
  if (p && c && p->is_chat() != c->is_chat()) {
    report.error("schema_mismatch", "completion",
                 "prompt and completion must both be strings or both be message lists");
  }
  if (p && p->is_chat()) check_turns(p->messages, "prompt", report);
  if (c && c->is_chat() &&
      std::none_of(c->messages.begin(), c->messages.end(),
                   [](const Message& m) { return m.role == "assistant"; })) {
    report.error("bad_turn_order", "completion", "no assistant turn: there is nothing to learn");
  }
  if (p) out.prompt = std::move(*p);
  if (c) out.completion = std::move(*c);
  for (auto& m : out.prompt.messages) m.trained = false;
  keep_extra(row, {"prompt", "completion"}, out);
}

struct SftSchema {
  const char* name;
  std::vector<const char*> keys;  // any of them tells this schema
  void (*read)(const OrderedJson&, RowReport&, Row&);
};

const SftSchema kSchemas[] = {
    {"messages", {"messages"}, read_messages_row},
    {"sharegpt", {"conversations"}, read_sharegpt_row},
    {"alpaca", {"instruction", "output"}, read_alpaca_row},
    {"prompt", {"completion", "prompt"}, read_prompt_completion_row},
    {"text", {"text"}, read_text_row},
};

const SftSchema* detect(const OrderedJson& row) {
  for (const auto& s : kSchemas) {
    for (const auto* k : s.keys) {
      if (row.contains(k)) return &s;
    }
  }
  return nullptr;
}

}  // namespace

bool read_sft_row(const OrderedJson& row, const DataOptions&, SchemaState& state, RowReport& report,
                  Row& out) {
  const auto* schema = detect(row);
  if (!schema) {
    for (const auto& s : kSchemas) {
      if (state.file_schema == s.name) schema = &s;
    }
  }
  if (!schema) {
    report.missing(row, "", "messages");
    return false;
  }
  if (state.file_schema.empty()) state.file_schema = schema->name;
  schema->read(row, report, out);
  return !report.failed();
}

}  // namespace keel
