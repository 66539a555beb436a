#include "keel/rl/prompts.h"

#include "keel/base/error.h"
#include "keel/base/log.h"
#include "keel/data/sampler.h"

namespace keel::rl {
namespace {

bool has_system_turn(const Row& row) {
  return !row.prompt.messages.empty() &&
         (row.prompt.messages[0].role == "system" || row.prompt.messages[0].role == "developer");
}

}  // namespace

Prompt render_prompt(const Tokenizer& tokenizer, const Row& row, const std::string& system_prompt) {
  Prompt p;
  if (!row.prompt.is_chat() && system_prompt.empty()) {
    p.text = row.prompt.text;
    p.ids = tokenizer.encode(p.text, true);
    return p;
  }
  OrderedJson messages = OrderedJson::array();
  if (!system_prompt.empty() && !has_system_turn(row)) {
    messages.push_back({{"role", "system"}, {"content", system_prompt}});
  }
  if (row.prompt.is_chat()) {
    for (const Message& m : row.prompt.messages) messages.push_back(OrderedJson(to_json(m)));
  } else {
    messages.push_back({{"role", "user"}, {"content", row.prompt.text}});
  }
  ChatOptions options;
  options.add_generation_prompt = true;
  if (!row.tools.is_null()) options.tools = OrderedJson(row.tools);
  p.text = tokenizer.apply_chat_template(messages, options);
  p.ids = tokenizer.encode(p.text, false);
  return p;
}

PromptSet load_prompts(const std::vector<std::string>& files, const DataSection& config,
                       uint64_t seed, const Tokenizer& tokenizer) {
  DataOptions options;
  options.task = DataTask::kRl;
  options.prompt_key = config.prompt_key;
  options.ground_truth_key = config.reward_column;
  options.max_rows = config.max_rows;
  options.seed = seed;
  const bool cuts =
      config.truncation == Truncation::kLeft || config.truncation == Truncation::kRight;
  if (!cuts) {
    options.max_prompt_tokens = config.max_prompt_length;
    options.overlong = config.truncation == Truncation::kDrop ? Overlong::kDrop : Overlong::kError;
  }
  options.count_prompt_tokens = [&](const Row& row) {
    return std::ssize(render_prompt(tokenizer, row, config.system_prompt).ids);
  };
  PromptSet set;
  set.data = load_dataset(files, options);
  for (const DataFinding& f : set.data.warnings) spdlog::warn("{}", to_string(f));
  if (set.data.num_dropped > 0) {
    spdlog::warn("{} prompts above data.max_prompt_length = {} were left out", set.data.num_dropped,
                 config.max_prompt_length);
  }
  for (const Row& row : set.data.rows) {
    Prompt p = render_prompt(tokenizer, row, config.system_prompt);
    const int64_t excess = std::ssize(p.ids) - config.max_prompt_length;
    if (cuts && excess > 0) {
      const auto begin =
          config.truncation == Truncation::kLeft ? p.ids.begin() : p.ids.end() - excess;
      p.ids.erase(begin, begin + excess);
    }
    KEEL_REQUIRE(!p.ids.empty(), "[{}:{}] expected a prompt with tokens, got none; try another row",
                 set.data.files[static_cast<size_t>(row.file)], row.row);
    set.prompts.push_back(std::move(p));
  }
  return set;
}

PromptSet hold_out(PromptSet& all, double fraction, uint64_t seed) {
  const int64_t rows = std::ssize(all.prompts);
  const auto count = std::clamp<int64_t>(
      static_cast<int64_t>(fraction * static_cast<double>(rows) + 0.5), 1, rows - 1);
  std::vector<char> chosen(static_cast<size_t>(rows), 0);
  const auto order = epoch_order(rows, seed, 0, true);
  for (int64_t i = 0; i < count; ++i)
    chosen[static_cast<size_t>(order[static_cast<size_t>(i)])] = 1;
  PromptSet kept, held;
  kept.data.files = held.data.files = all.data.files;
  kept.data.fingerprint = held.data.fingerprint = all.data.fingerprint;
  for (size_t i = 0; i < chosen.size(); ++i) {
    PromptSet& to = chosen[i] ? held : kept;
    to.data.rows.push_back(std::move(all.data.rows[i]));
    to.prompts.push_back(std::move(all.prompts[i]));
  }
  all = std::move(kept);
  return held;
}

}  // namespace keel::rl
