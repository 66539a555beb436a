#include "keel/cli/verbs.h"

#include <array>

namespace keel::cli {

std::span<const Verb> verbs() {
  static constexpr auto kVerbs = std::to_array<Verb>({
      {"train", "Run", "train a model with reinforcement learning",
       "keel train FILE [key=value ...]",
       "keel train recipes/smollm2_arithmetic.yaml trainer.steps=4", define_train},
      {"rollout", "Run", "sample answers to a file",
       "keel rollout [FILE] [--model M --data F --out F] [key=value ...]",
       "keel rollout recipes/smollm2_arithmetic.yaml --out answers.jsonl rollout.n=2",
       define_rollout},
      {"eval", "Run", "measure a model on validation files",
       "keel eval [FILE] [--model M --data F --out F] [key=value ...]",
       "keel eval recipes/smollm2_arithmetic.yaml trainer.val_n=4", define_eval},
      {"report", "Run", "write or summarise the report of a run",
       "keel report RUN [--json | --markdown]", "keel report runs/smollm2_arithmetic --markdown",
       define_report},
      {"bench", "Run", "speed and memory of a model on this machine, beside the machine's limits",
       "keel bench limits|generate|train|grpo --model DIR [...]",
       "keel bench train --model tests/golden/models/llama3 --tokens 64,128 --repeats 2",
       define_bench},
      {"export", "Run", "a run's checkpoint as a Hugging Face folder",
       "keel export RUN FOLDER [--step N] [--dtype f32|bf16|f16]",
       "keel export runs/smollm2_arithmetic models/smollm2-adds", define_export},
      {"simulate", "Run",
       "predict a step of RL before it runs, or published runs beside what they took",
       "keel simulate RUN.yaml [--id ID] | --runs FILE_OR_DIR | calibrate RUNS... [--json]",
       "keel simulate --runs tests/golden/sim/runs", define_simulate},
      {"convert", "Set-up", "GGUF file to Hugging Face folder",
       "keel convert FILE.gguf FOLDER [--dtype f32|bf16|f16]",
       "keel convert SmolLM2-135M-Instruct.Q4_1.gguf models/smollm2", define_convert},
      {"init", "Set-up", "a model with random weights, to train from scratch",
       "keel init CONFIG.json FOLDER [--tokenizer DIR] [--seed N]",
       "keel init recipes/tiny_moe_config.json models/tiny_moe --tokenizer "
       "tests/golden/tokenizers/qwen",
       define_init},
      {"plan", "Set-up", "layouts for a cluster: what fits, how fast, what limits it",
       "keel plan [RUN.yaml] [--model M --hardware H --devices N ...] [--out PLAN.yaml]",
       "keel plan tests/golden/sim/runs/cann-qwen3-235b.yaml --id grpo-122tps", define_plan},
      {"check", "Set-up", "look for faults in data files, model folders and plans of runs",
       "keel check [plan RUNS.yaml ...] [--data F ... --task T] [--model DIR]",
       "keel check --model tests/golden/models/llama3", define_check},
      {"config", "Set-up", "show all options with help, value and origin",
       "keel config [FILE] [key=value ...]", "keel config rollout.n=16", define_config},
      {"doctor", "Set-up", "what this machine has and what will work on it", "keel doctor",
       "keel doctor", define_doctor},
      {"tokenize", "For scripts", "texts and conversations to ids",
       "keel tokenize --tokenizer DIR --cases F",
       "echo '{\"text\": \"hello\"}' | keel tokenize --tokenizer tests/golden/tokenizers/qwen "
       "--cases -",
       define_tokenize},
      {"logprobs", "For scripts", "log-probabilities and entropies of token ids",
       "keel logprobs --model DIR --cases F [--dtype f32|bf16]",
       "echo '{\"ids\": [5, 6, 7]}' | keel logprobs --model tests/golden/models/llama3 --cases -",
       define_logprobs},
      {"score", "For scripts", "answers to scores by a rule", "keel score --rule R --cases F",
       "echo '{\"answer\": \"It is 7.\", \"ground_truth\": \"7\"}' | keel score --rule last_number "
       "--cases -",
       define_score},
      {"balance", "For scripts", "load-balancing plans for cases, with score and time",
       "keel balance KIND --cases F [--json]",
       "keel balance seqlen_balance --cases tests/golden/balance/seqlen_balance.jsonl",
       define_balance},
      {"sched", "For scripts", "drafts and KV caching replayed on cases, with score and time",
       "keel sched KIND --cases F",
       "keel sched suffix_groups --cases tests/golden/sched/suffix_groups.jsonl", define_sched},
  });
  return kVerbs;
}

ConfigArgs split_config_args(const std::vector<std::string>& args) {
  ConfigArgs out;
  bool value_of_dashed = false;  // "--a.b 3": its message needs both parts side by side
  for (const std::string& arg : args) {
    const bool override = arg.find('=') != std::string::npos || arg.starts_with('~') ||
                          arg.starts_with('+') || arg.starts_with('-') || value_of_dashed;
    value_of_dashed = arg.starts_with("--") && arg.find('=') == std::string::npos;
    if (override || !out.file.empty()) {
      out.overrides.push_back(arg);
    } else {
      out.file = arg;
    }
  }
  return out;
}

}  // namespace keel::cli
