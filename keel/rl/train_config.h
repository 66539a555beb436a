// Everything that `keel train` can be told, as one struct per section. Terms are verl's where verl
// has one. Defaults train; only model.path and data.train_files must be given.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "keel/base/config.h"
#include "keel/rl/advantages.h"
#include "keel/rl/losses.h"
#include "keel/train/schedule.h"

namespace keel::rl {

constexpr auto enum_names(AdvantageEstimator) {
  using E = AdvantageEstimator;
  return std::to_array<EnumName<E>>({{E::kGrpo, "grpo"},
                                     {E::kDrGrpo, "dr_grpo"},
                                     {E::kRloo, "rloo"},
                                     {E::kReinforcePlusPlusBaseline, "reinforce_pp_baseline"}});
}
constexpr auto enum_names(PolicyLoss) {
  using E = PolicyLoss;
  return std::to_array<EnumName<E>>(
      {{E::kPpoClip, "ppo_clip"}, {E::kGspo, "gspo"}, {E::kCispo, "cispo"}});
}
constexpr auto enum_names(LossAggregation) {
  using E = LossAggregation;
  return std::to_array<EnumName<E>>({{E::kTokenMean, "token-mean"},
                                     {E::kSeqMeanTokenSum, "seq-mean-token-sum"},
                                     {E::kSeqMeanTokenMean, "seq-mean-token-mean"},
                                     {E::kSeqMeanTokenSumNorm, "seq-mean-token-sum-norm"}});
}
constexpr auto enum_names(KlEstimator) {
  using E = KlEstimator;
  return std::to_array<EnumName<E>>(
      {{E::kK1, "kl"}, {E::kAbs, "abs"}, {E::kK2, "mse"}, {E::kK3, "low_var_kl"}});
}

}  // namespace keel::rl

namespace keel::train {

constexpr auto enum_names(Schedule) {
  using E = Schedule;
  return std::to_array<EnumName<E>>({{E::kConstant, "constant"},
                                     {E::kLinear, "linear"},
                                     {E::kCosine, "cosine"},
                                     {E::kPolynomial, "polynomial"},
                                     {E::kWsd, "wsd"}});
}

}  // namespace keel::train

namespace keel::rl {

enum class ComputeType { kF32, kBf16 };
constexpr auto enum_names(ComputeType) {
  using E = ComputeType;
  return std::to_array<EnumName<E>>({{E::kF32, "f32"}, {E::kBf16, "bf16"}});
}

// What happens with a prompt above data.max_prompt_length.
enum class Truncation { kError, kDrop, kLeft, kRight };
constexpr auto enum_names(Truncation) {
  using E = Truncation;
  return std::to_array<EnumName<E>>(
      {{E::kError, "error"}, {E::kDrop, "drop"}, {E::kLeft, "left"}, {E::kRight, "right"}});
}

// What a step does when dynamic sampling has not found enough groups.
enum class SamplingFallback { kPartial, kFill, kStop };
constexpr auto enum_names(SamplingFallback) {
  using E = SamplingFallback;
  return std::to_array<EnumName<E>>(
      {{E::kPartial, "partial"}, {E::kFill, "fill"}, {E::kStop, "stop"}});
}

struct ModelSection {
  std::string path;
  ComputeType dtype = ComputeType::kF32;

  template <class V>
  void visit(V& v) {
    v(path, "path", "Hugging Face model folder, or org/name in the local Hugging Face cache")
        .must_be_given()
        .also_known_as({"model_name_or_path", "model", "pretrain"});
    v(dtype, "dtype", "type of weights in computation; the optimizer always holds f32")
        .also_known_as({"torch_dtype", "bf16"});
  }
  void validate(ConfigChecks& check) const;
};

struct DataSection {
  std::vector<std::string> train_files, val_files;
  double val_fraction = 0;
  std::string prompt_key = "prompt", reward_column, system_prompt;
  int64_t max_prompt_length = 512;
  Truncation truncation = Truncation::kError;
  int64_t train_batch_size = 8, max_rows = 0;
  std::optional<int64_t> seed;
  bool shuffle = true;

  template <class V>
  void visit(V& v) {
    v(train_files, "train_files", "parquet, json or jsonl files with prompts")
        .must_be_given()
        .also_known_as({"dataset_name", "prompt_data", "train_file"});
    v(val_files, "val_files", "files to validate on").also_known_as({"eval_files", "test_files"});
    v(val_fraction, "val_fraction", "share of the training rows held out by data.seed")
        .range(0, 0.9);
    v(prompt_key, "prompt_key", "column with the prompt");
    v(reward_column, "reward_column", "column with the reference answer; \"\" = found by name");
    v(system_prompt, "system_prompt", "put before prompts that have no system turn; \"\" = none");
    v(max_prompt_length, "max_prompt_length", "tokens of a prompt at most").at_least(1);
    v(truncation, "truncation", "longer prompts: refuse, leave out, or cut on the left or right");
    v(train_batch_size, "train_batch_size", "prompts of a step")
        .range(1, 1 << 20)
        .also_known_as({"rollout_batch_size", "per_device_train_batch_size"});
    v(max_rows, "max_rows", "rows used, chosen by data.seed; 0 = all")
        .at_least(0)
        .also_known_as({"max_samples", "train_max_samples"});
    v(seed, "seed", "of the order and choice of rows; null = trainer.seed").at_least(0);
    v(shuffle, "shuffle", "new order of rows in each epoch");
  }
  void validate(ConfigChecks& check) const;
};

struct RolloutSection {
  int64_t n = 8, top_k = 0, max_new_tokens = 512;
  double temperature = 1, top_p = 1, min_p = 0;
  int64_t max_num_seqs = 64, max_batched_tokens = 2048, kv_blocks = 0;
  std::optional<int64_t> seed;
  bool prefix_cache = true, ignore_eos = false;
  std::vector<std::string> stop;

  template <class V>
  void visit(V& v) {
    v(n, "n", "answers sampled for each prompt (its group)")
        .range(1, 1 << 16)
        .also_known_as({"num_generations", "n_samples_per_prompt", "group_size"});
    v(temperature, "temperature", "of sampling").above(0);
    v(top_k, "top_k", "most likely tokens to sample from; 0 or -1 = all").at_least(-1);
    v(top_p, "top_p", "probability mass to sample from; 1 = all").range(0, 1).above_min = true;
    v(min_p, "min_p", "least probability relative to the likeliest token; 0 = off").range(0, 1);
    v(max_new_tokens, "max_new_tokens", "tokens of an answer at most")
        .range(1, 1 << 24)
        .also_known_as({"max_response_length", "max_completion_length", "response_length"});
    v(stop, "stop", "texts that end an answer");
    v(ignore_eos, "ignore_eos", "go on after end-of-sequence tokens (for benchmarks)");
    v(max_num_seqs, "max_num_seqs", "answers generated at once").range(1, 1 << 20);
    v(max_batched_tokens, "max_batched_tokens", "tokens computed in one engine step")
        .range(1, 1 << 24)
        .also_known_as({"max_num_batched_tokens"});
    v(kv_blocks, "kv_blocks", "KV blocks of 16 tokens; 0 = what max_num_seqs needs")
        .range(0, 1 << 30);
    v(prefix_cache, "prefix_cache", "share KV of equal prefixes between requests")
        .also_known_as({"enable_prefix_caching"});
    v(seed, "seed", "of sampling; null = trainer.seed").at_least(0);
  }
  void validate(ConfigChecks& check) const;
};

struct AlgorithmSection {
  AdvantageEstimator adv_estimator = AdvantageEstimator::kGrpo;
  bool norm_adv_by_std = true, use_kl_in_reward = false;
  KlEstimator kl_penalty = KlEstimator::kK1;
  double kl_coef = 0.001;

  template <class V>
  void visit(V& v) {
    v(adv_estimator, "adv_estimator", "how rewards of a group become advantages");
    v(norm_adv_by_std, "norm_adv_by_std", "grpo: divide by the group's standard deviation")
        .also_known_as({"norm_adv_by_std_in_grpo", "scale_rewards"});
    v(use_kl_in_reward, "use_kl_in_reward", "subtract the KL to the reference from the reward");
    v(kl_penalty, "kl_penalty", "estimator of that KL");
    v(kl_coef, "kl_coef", "weight of that KL").at_least(0);
  }
  void validate(ConfigChecks& check) const;
};

struct ActorSection {
  PolicyLoss loss = PolicyLoss::kPpoClip;
  double clip_ratio_low = 0.2, clip_ratio_high = 0.2, clip_ratio_c = 3;
  LossAggregation loss_agg_mode = LossAggregation::kTokenMean;
  int64_t mini_batch_size = 0, micro_batch_tokens = 16384, epochs = 1;
  double entropy_coef = 0, kl_loss_coef = 0.001;
  bool use_kl_loss = false, shared_prefix = true, recompute_old_log_probs = false;
  KlEstimator kl_loss_type = KlEstimator::kK3;

  template <class V>
  void visit(V& v) {
    v(loss, "loss", "policy loss").also_known_as({"loss_mode", "policy_loss"});
    v(clip_ratio_low, "clip_ratio_low", "ratios are clipped below 1 - this")
        .range(0, 1)
        .also_known_as({"clip_ratio", "epsilon", "eps_clip"});
    v(clip_ratio_high, "clip_ratio_high", "ratios are clipped above 1 + this")
        .at_least(0)
        .also_known_as({"epsilon_high", "eps_clip_high"});
    v(clip_ratio_c, "clip_ratio_c", "dual clip: bound of the loss at negative advantages").above(1);
    v(loss_agg_mode, "loss_agg_mode", "how token losses become one number");
    v(mini_batch_size, "mini_batch_size", "prompts of one update; 0 = all of the step (on-policy)")
        .at_least(0)
        .also_known_as({"ppo_mini_batch_size", "mini_batchsize"});
    v(micro_batch_tokens, "micro_batch_tokens", "tokens of one forward and backward pass")
        .at_least(1)
        .also_known_as({"ppo_max_token_len_per_gpu", "max_tokens_per_gpu", "max_tokens_per_mb",
                        "ppo_micro_batch_size_per_gpu", "ppo_micro_batch_size"});
    v(epochs, "epochs", "passes over a step's answers")
        .range(1, 1000)
        .also_known_as({"ppo_epochs", "num_iterations"});
    v(entropy_coef, "entropy_coef", "weight of the entropy bonus")
        .at_least(0)
        .also_known_as({"entropy_coeff"});
    v(use_kl_loss, "use_kl_loss", "add the KL to the reference model to the loss");
    v(kl_loss_coef, "kl_loss_coef", "weight of that KL").at_least(0).also_known_as({"beta"});
    v(kl_loss_type, "kl_loss_type", "estimator of that KL");
    v(shared_prefix, "shared_prefix", "compute the prompt of a group once");
    v(recompute_old_log_probs, "recompute_old_log_probs",
      "compute old log-probs again instead of taking the recorded, equal ones");
  }
  void validate(ConfigChecks& check) const;
};

struct DynamicSamplingSection {
  bool enable = false;
  int64_t max_batches = 10;
  SamplingFallback fallback = SamplingFallback::kPartial;

  template <class V>
  void visit(V& v) {
    v(enable, "enable", "replace groups whose rewards are all equal (DAPO)");
    v(max_batches, "max_batches", "batches of prompts drawn for a step at most")
        .range(1, 1000)
        .also_known_as({"max_num_gen_batches"});
    v(fallback, "fallback",
      "then: partial = train on what was found, fill = add groups without signal, stop = end");
  }
};

struct OverlongSection {
  bool enable = false;
  int64_t buffer_tokens = 64;
  double penalty_factor = 1;

  template <class V>
  void visit(V& v) {
    v(enable, "enable", "lower the reward of answers near the length limit (DAPO)");
    v(buffer_tokens, "buffer_tokens", "tokens before the limit where the penalty starts")
        .at_least(1)
        .also_known_as({"len", "overlong_buffer_len"});
    v(penalty_factor, "penalty_factor", "penalty at the limit").at_least(0);
  }
};

struct OptimSection {
  double lr = 1e-6, eps = 1e-8, weight_decay = 0.01, min_lr_ratio = 0, grad_clip = 1;
  std::vector<double> betas = {0.9, 0.999};
  int64_t warmup_steps = 0, total_steps = 0, decay_steps = 0;
  train::Schedule schedule = train::Schedule::kConstant;

  template <class V>
  void visit(V& v) {
    v(lr, "lr", "peak learning rate").at_least(0).also_known_as({"learning_rate"});
    v(betas, "betas", "decay rates of the two moments of AdamW").range(0, 0.999999);
    v(eps, "eps", "added to the root of the second moment").above(0).also_known_as({"adam_eps"});
    v(weight_decay, "weight_decay", "decoupled, on matrices").range(0, 1);
    v(schedule, "schedule", "shape of the learning rate after warm-up")
        .also_known_as({"lr_scheduler_type", "warmup_style"});
    v(warmup_steps, "warmup_steps", "updates with a linear rise from 0")
        .at_least(0)
        .also_known_as({"lr_warmup_steps"});
    v(total_steps, "total_steps", "updates until the end of the schedule; 0 = those of the run")
        .at_least(0)
        .also_known_as({"total_training_steps"});
    v(decay_steps, "decay_steps", "wsd: updates of the final decay").at_least(0);
    v(min_lr_ratio, "min_lr_ratio", "final / peak learning rate").range(0, 1);
    v(grad_clip, "grad_clip", "largest global gradient norm; 0 = no clipping")
        .at_least(0)
        .also_known_as({"max_grad_norm", "clip_grad"});
  }
  void validate(ConfigChecks& check) const;
};

struct RewardSection {
  std::string rule, path, function = "compute_score";
  double timeout_s = 10;
  int64_t num_workers = 2;

  template <class V>
  void visit(V& v) {
    v(rule, "rule", "built-in rule; \"\" = by each row's data_source");
    v(path, "path", "Python file with a reward function; \"\" = use the rule")
        .also_known_as({"custom_reward_function", "remote_rm_url"});
    v(function, "function", "its name in that file").also_known_as({"reward_funcs"});
    v(timeout_s, "timeout_s", "seconds for one call, then the answer counts as failed").above(0);
    v(num_workers, "num_workers", "Python processes").range(1, 1024);
  }
  void validate(ConfigChecks& check) const;
};

struct TrainerSection {
  int64_t steps = 0, epochs = 1, val_every = 0, val_n = 1, save_every = 0, keep = 2;
  int64_t log_samples = 8, seed = 1, threads = 0;
  double val_temperature = 1;
  bool val_before_train = true, save_best = false, trace = false;
  std::string resume = "auto", replay, run_dir = "runs", name = "run";

  template <class V>
  void visit(V& v) {
    v(steps, "steps", "steps to train; 0 = as many as the epochs have")
        .at_least(0)
        .also_known_as({"total_training_steps", "max_steps", "num_rollout"});
    v(epochs, "epochs", "passes over the training rows when steps is 0")
        .at_least(1)
        .also_known_as({"total_epochs", "num_train_epochs", "num_episodes"});
    v(val_before_train, "val_before_train", "validate before the first step");
    v(val_every, "val_every", "steps between validations; 0 = only at the end")
        .at_least(0)
        .also_known_as({"test_freq", "eval_steps", "eval_interval"});
    v(val_n, "val_n", "answers for each validation prompt").range(1, 4096);
    v(val_temperature, "val_temperature", "of sampling in validation; 0 = greedy").at_least(0);
    v(save_every, "save_every", "steps between checkpoints; 0 = only at the end")
        .at_least(0)
        .also_known_as({"save_freq", "save_steps", "save_interval"});
    v(save_best, "save_best", "also save the step that validates best so far");
    v(keep, "keep", "newest checkpoints to keep, besides the best one")
        .at_least(1)
        .also_known_as({"max_actor_ckpt_to_keep", "save_total_limit"});
    v(resume, "resume", "auto = the newest checkpoint of this run, never, or a checkpoint folder")
        .also_known_as({"resume_mode", "resume_from_path", "resume_from_checkpoint"});
    v(replay, "replay",
      "samples folder of a former run whose answers are trained on again; \"\" = sample")
        .also_known_as({"load_debug_rollout_data"});
    v(run_dir, "run_dir", "folder of runs")
        .also_known_as({"default_local_dir", "output_dir", "save_dir"});
    v(name, "name", "of this run; its folder in run_dir")
        .also_known_as({"experiment_name", "run_name"});
    v(log_samples, "log_samples", "answers of each step written to samples/; -1 = all")
        .at_least(-1);
    v(trace, "trace", "write trace.json (Chrome trace)");
    v(seed, "seed", "of data and sampling where they have none of their own").at_least(0);
    v(threads, "threads", "compute threads; 0 = all CPUs that this process may use")
        .range(0, 4096)
        .also_known_as({"num_threads"});
  }
  void validate(ConfigChecks& check) const;
};

struct SftSection {
  int64_t steps = 0, batch_size = 32;
  double lr = 1e-3;
  std::vector<std::string> train_files;

  template <class V>
  void visit(V& v) {
    v(steps, "steps",
      "supervised updates before the first step of reinforcement learning; 0 = none")
        .at_least(0);
    v(train_files, "train_files", "files with prompts and completions");
    v(batch_size, "batch_size", "rows of an update").range(1, 1 << 20);
    v(lr, "lr", "learning rate of these updates").above(0);
  }
  void validate(ConfigChecks& check) const;
};

struct NumericsSection {
  std::string isa;

  template <class V>
  void visit(V& v) {
    v(isa, "isa", "instruction set to pin, e.g. AVX2; \"\" = the best of this machine");
  }
};

struct TrainConfig {
  ModelSection model;
  DataSection data;
  RolloutSection rollout;
  AlgorithmSection algorithm;
  ActorSection actor;
  DynamicSamplingSection dynamic_sampling;
  OverlongSection overlong;
  OptimSection optim;
  RewardSection reward;
  SftSection sft;
  TrainerSection trainer;
  NumericsSection numerics;

  template <class V>
  void visit(V& v) {
    v.section("model", model, "what is trained");
    v.section("data", data, "prompts to train and validate on");
    v.section("rollout", rollout, "how answers are sampled");
    v.section("algorithm", algorithm, "from rewards to advantages");
    v.section("actor", actor, "from advantages to gradients");
    v.section("dynamic_sampling", dynamic_sampling, "groups without signal");
    v.section("overlong", overlong, "answers near the length limit");
    v.section("optim", optim, "AdamW and its learning rate");
    v.section("reward", reward, "how answers are scored");
    v.section("sft", sft, "supervised warm-up");
    v.section("trainer", trainer, "length, validation, checkpoints and output of a run");
    v.section("numerics", numerics, "exactness across machines");
  }
  // Rules over several sections. Looks at names of files, never into them.
  void validate(ConfigChecks& check) const;

  // Prompts of one update.
  int64_t mini_batch_size() const {
    return actor.mini_batch_size == 0 ? data.train_batch_size : actor.mini_batch_size;
  }
  uint64_t data_seed() const { return static_cast<uint64_t>(data.seed.value_or(trainer.seed)); }
  uint64_t rollout_seed() const {
    return static_cast<uint64_t>(rollout.seed.value_or(trainer.seed));
  }
};

}  // namespace keel::rl
