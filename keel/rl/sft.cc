#include "keel/rl/sft.h"

#include "keel/base/error.h"
#include "keel/base/log.h"
#include "keel/data/sampler.h"
#include "keel/rl/policy_pass.h"
#include "keel/rl/prompts.h"

namespace keel::rl {
namespace {

struct Example {
  std::vector<int32_t> prompt, completion;
};

// Prompt and completion as ids; the end of the completion is the tokenizer's end of sequence, or,
// in conversations, what the template writes after the assistant's turn.
Example tokenize(const Tokenizer& tokenizer, const Row& row, const std::string& system_prompt) {
  Example e;
  const Prompt prompt = render_prompt(tokenizer, row, system_prompt);
  e.prompt = prompt.ids;
  if (row.completion.is_chat()) {
    OrderedJson messages = OrderedJson::array();
    for (const Message& m : row.prompt.messages) messages.push_back(OrderedJson(to_json(m)));
    for (const Message& m : row.completion.messages) messages.push_back(OrderedJson(to_json(m)));
    const std::string whole = tokenizer.apply_chat_template(messages, {});
    KEEL_REQUIRE(whole.starts_with(prompt.text),
                 "[sft] expected the chat template to keep the prompt as a prefix, row {} differs; "
                 "try text rows",
                 row.row);
    e.completion = tokenizer.encode(whole.substr(prompt.text.size()), false);
  } else {
    e.completion = tokenizer.encode(row.completion.text, false);
    if (const auto eos = tokenizer.eos_id()) e.completion.push_back(*eos);
  }
  return e;
}

}  // namespace

void run_sft(const TrainConfig& config, model::Model& model, train::AdamW& optimizer,
             parallel::Group& group, const Tokenizer& tokenizer, RunFiles& files,
             const std::function<void()>& before_update) {
  DataOptions options;
  options.task = DataTask::kSft;
  const Dataset data = load_dataset(config.sft.train_files, options);
  std::vector<Example> examples;
  for (const Row& row : data.rows)
    examples.push_back(tokenize(tokenizer, row, config.data.system_prompt));
  KEEL_REQUIRE(std::ssize(examples) >= config.sft.batch_size,
               "[sft.batch_size] expected at most the {} rows of the data, got {}", examples.size(),
               config.sft.batch_size);
  optimizer.reset(
      {.lr = config.sft.lr, .weight_decay = config.optim.weight_decay, .max_grad_norm = 1.0});
  Sampler sampler(std::ssize(examples), data.fingerprint, {config.data_seed(), true, true});
  files.console().phase(0, "supervised warm-up", config.sft.steps, "updates");
  double loss = 0, count = 1;
  for (int64_t step = 0; step < config.sft.steps; ++step) {
    before_update();
    const auto rows = sampler.next(config.sft.batch_size);
    std::vector<PassItem> items;
    double sums[2] = {};  // tokens, loss
    for (size_t i = static_cast<size_t>(group.rank()); i < rows.size();
         i += static_cast<size_t>(group.size())) {
      const Example& e = examples[static_cast<size_t>(rows[i])];
      PassItem item;
      item.prompt = e.prompt;
      item.answer = e.completion;
      items.push_back(item);
      sums[0] += static_cast<double>(e.completion.size());
    }
    group.all_reduce_sum(std::span<double>(sums, 1));
    count = sums[0];
    accumulate_gradients(
        model, items, {config.actor.micro_batch_tokens, false},
        [&](std::span<const int32_t>, const TokenValues& values) {
          for (const float v : values.log_prob) sums[1] -= v;
          return MicroBatchGrads{std::vector<double>(values.log_prob.size(), -1 / count), {}};
        });
    for (ops::Parameter* p : model.parameters()) {
      group.all_reduce_sum(std::span<float>(p->grad(), static_cast<size_t>(p->num_elements())));
    }
    group.all_reduce_sum(std::span<double>(sums + 1, 1));
    loss = sums[1] / count;
    // A straight line down to a tenth: warm-ups are short.
    optimizer.step(1.0 - 0.9 * static_cast<double>(step) / static_cast<double>(config.sft.steps));
    model.publish();
    files.console().progress(step + 1);
  }
  files.console().end_phase();
  spdlog::info("supervised warm-up: {} updates, last loss {:.4f} nats per token", config.sft.steps,
               loss);
}

}  // namespace keel::rl
