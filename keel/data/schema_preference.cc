// dpo and rm rows (TRL's explicit and implicit prompts, OpenAI's preference lines) and kto rows.
#include <fmt/format.h>

#include <algorithm>

#include "keel/data/schema.h"

namespace keel {
namespace {

bool same(const Message& a, const Message& b) {
  return a.role == b.role && a.content == b.content && a.extra == b.extra;
}

bool same(const Content& a, const Content& b) {
  return a.text == b.text &&
         std::equal(a.messages.begin(), a.messages.end(), b.messages.begin(), b.messages.end(),
                    [](const Message& x, const Message& y) { return same(x, y); });
}

// Moves what both answers begin with into the prompt. False if they share nothing.
bool take_common_prompt(Row& out) {
  auto& c = out.chosen.messages;
  auto& r = out.rejected.messages;
  if (out.chosen.is_chat()) {
    const size_t limit = std::min(c.size(), r.size());
    size_t n = 0;
    while (n < limit && same(c[n], r[n])) ++n;
    if (n == limit && n > 0) --n;  // something must be left to prefer
    out.prompt.messages.assign(c.begin(), c.begin() + static_cast<ptrdiff_t>(n));
    c.erase(c.begin(), c.begin() + static_cast<ptrdiff_t>(n));
    r.erase(r.begin(), r.begin() + static_cast<ptrdiff_t>(n));
    return n > 0;
  }
  const auto& a = out.chosen.text;
  const auto& b = out.rejected.text;
  size_t n =
      static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  while (n > 0 && n < a.size() && (static_cast<unsigned char>(a[n]) & 0xC0) == 0x80) --n;
  out.prompt.text = a.substr(0, n);
  out.chosen.text.erase(0, n);
  out.rejected.text.erase(0, n);
  return n > 0;
}

void check_scores(const OrderedJson& row, RowReport& report) {
  const auto* c = find_value(row, "score_chosen");
  const auto* r = find_value(row, "score_rejected");
  if (c && r && c->is_number() && r->is_number() && c->get<double>() < r->get<double>()) {
    report.warn("no_preference", "score_chosen", "chosen is scored below rejected");
  }
}

void read_pair(const OrderedJson& row, const std::string& chosen_key,
               const std::string& rejected_key, RowReport& report, Row& out) {
  const auto* chosen = require_value(row, "", chosen_key, report);
  const auto* rejected = require_value(row, "", rejected_key, report);
  if (!chosen || !rejected) return;
  if (chosen->is_array() != rejected->is_array() &&
      (chosen->is_string() || rejected->is_string())) {
    return report.error(
        "schema_mismatch", rejected_key,
        fmt::format("is {}, but {} is {}", rejected->type_name(), chosen_key, chosen->type_name()));
  }
  auto c = read_content(*chosen, chosen_key, Empty::kWarn, report);
  auto r = read_content(*rejected, rejected_key, Empty::kWarn, report);
  if (!c || !r) return;
  out.chosen = std::move(*c);
  out.rejected = std::move(*r);
  if (same(out.chosen, out.rejected)) {
    report.warn("no_preference", rejected_key, fmt::format("equals {}", chosen_key));
  }
}

}  // namespace

bool read_preference_row(const OrderedJson& row, const DataOptions& options, RowReport& report,
                         Row& out) {
  if (row.contains("preferred_output") || row.contains("non_preferred_output")) {
    read_pair(row, "preferred_output", "non_preferred_output", report, out);
    if (const auto* input = require_value(row, "", "input", report)) {
      const auto* list = require_value(*input, "input", "messages", report);
      auto messages = list ? read_messages(*list, "input.messages", report) : std::nullopt;
      if (messages) out.prompt.messages = std::move(*messages);
    }
    keep_extra(row, {"input", "preferred_output", "non_preferred_output"}, out);
    return !report.failed();
  }
  read_pair(row, "chosen", "rejected", report, out);
  if (row.contains(options.prompt_key)) {
    const auto* prompt = require_value(row, "", options.prompt_key, report);
    auto content =
        prompt ? read_content(*prompt, options.prompt_key, Empty::kError, report) : std::nullopt;
    if (content) out.prompt = std::move(*content);
    if (out.prompt.is_chat()) check_turns(out.prompt.messages, options.prompt_key, report);
  } else if (!report.failed() && !take_common_prompt(out)) {
    report.error("no_preference", "rejected",
                 "shares no beginning with chosen, and there is no prompt");
  }
  check_scores(row, report);
  keep_extra(row, {options.prompt_key, "chosen", "rejected"}, out);
  return !report.failed();
}

bool read_kto_row(const OrderedJson& row, const DataOptions& options, RowReport& report, Row& out) {
  const auto* prompt = require_value(row, "", options.prompt_key, report);
  const auto* completion = require_value(row, "", "completion", report);
  const auto* label = require_value(row, "", "label", report);
  auto p = prompt ? read_content(*prompt, options.prompt_key, Empty::kError, report) : std::nullopt;
  auto c =
      completion ? read_content(*completion, "completion", Empty::kError, report) : std::nullopt;
  if (label && !label->is_boolean()) {
    report.error("wrong_type", "label",
                 fmt::format("expected true or false, got {}", label->type_name()));
  } else if (label) {
    out.label = label->get<bool>();
  }
  if (p) out.prompt = std::move(*p);
  if (c) out.completion = std::move(*c);
  keep_extra(row, {options.prompt_key, "completion", "label"}, out);
  return !report.failed();
}

}  // namespace keel
