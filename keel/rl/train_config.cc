#include "keel/rl/train_config.h"

#include <filesystem>

#include "keel/spec/model_name.h"

namespace keel::rl {
namespace {

constexpr int64_t kTokensPerKvBlock = 16;

std::string text(int64_t value) { return fmt::format("{}", value); }
std::string text(double value) { return fmt::format("{}", value); }

}  // namespace

void ModelSection::validate(ConfigChecks& check) const {
  if (!check.given("path")) return;
  try {
    resolve_model(path);
  } catch (const Error&) {
    const auto slash = path.find('/');
    const bool hub_name = slash != std::string::npos && slash == path.rfind('/') && slash > 0 &&
                          !std::filesystem::exists(path.substr(0, slash));
    if (hub_name) {
      check.error("missing_file", {"path"}, "a folder, or a model in the local Hugging Face cache",
                  path + ", which is neither", "'huggingface-cli download " + path + "'");
    } else {
      check.require_file("path", path);
    }
  }
}

void DataSection::validate(ConfigChecks& check) const {
  for (const std::string& file : train_files) check.require_file("train_files", file);
  for (const std::string& file : val_files) {
    check.require_file("val_files", file);
    for (const std::string& train : train_files) {
      std::error_code ec;
      if (file == train || std::filesystem::equivalent(file, train, ec)) {
        check.warn("suspicious_value", {"val_files", "train_files"}, "rows not trained on",
                   file + ", a training file", "data.val_fraction=0.1");
      }
    }
  }
  if (!val_files.empty() && val_fraction > 0) {
    check.error("conflict", {"val_fraction", "val_files"}, "one of val_files and val_fraction",
                "both", "data.val_fraction=0");
  }
  if (max_rows > 0 && max_rows < train_batch_size) {
    check.error("out_of_range", {"train_batch_size", "max_rows"},
                fmt::format("at most max_rows = {}", max_rows), text(train_batch_size),
                text(max_rows));
  }
}

void RolloutSection::validate(ConfigChecks& check) const {
  if (max_batched_tokens < max_num_seqs) {
    check.error("out_of_range", {"max_batched_tokens", "max_num_seqs"},
                fmt::format("at least max_num_seqs = {}", max_num_seqs), text(max_batched_tokens),
                text(max_num_seqs));
  }
  if (temperature > 10) {
    check.warn("suspicious_value", {"temperature"}, "a temperature near 1", text(temperature));
  }
}

void AlgorithmSection::validate(ConfigChecks& check) const {
  if (!norm_adv_by_std && adv_estimator != AdvantageEstimator::kGrpo) {
    check.warn("conflict", {"norm_adv_by_std", "adv_estimator"}, "this key with grpo only",
               "it with " + enum_name(adv_estimator), "removing it");
  }
  if (use_kl_in_reward && kl_coef == 0) {
    check.warn("suspicious_value", {"kl_coef", "use_kl_in_reward"}, "a weight above 0", "0",
               "algorithm.use_kl_in_reward=false");
  }
}

void ActorSection::validate(ConfigChecks& check) const {
  if (use_kl_loss && kl_loss_coef == 0) {
    check.warn("suspicious_value", {"kl_loss_coef", "use_kl_loss"}, "a weight above 0", "0",
               "actor.use_kl_loss=false, which saves the reference model");
  }
  // Compared with the defaults: a dumped configuration sets every key.
  const ActorSection fresh;
  if (kl_loss_coef != fresh.kl_loss_coef && kl_loss_coef > 0 && !use_kl_loss) {
    check.warn("conflict", {"use_kl_loss", "kl_loss_coef"}, "true, because kl_loss_coef is set",
               "false (the weight has no effect)", "actor.use_kl_loss=true");
  }
  if (loss == PolicyLoss::kGspo && loss_agg_mode != fresh.loss_agg_mode &&
      loss_agg_mode != LossAggregation::kSeqMeanTokenMean) {
    check.warn("conflict", {"loss_agg_mode", "loss"}, "seq-mean-token-mean, which gspo always uses",
               enum_name(loss_agg_mode), "removing it");
  }
}

void OptimSection::validate(ConfigChecks& check) const {
  if (lr >= 1) check.warn("suspicious_value", {"lr"}, "a rate far below 1", text(lr), "1e-6");
  if (lr == 0) check.warn("suspicious_value", {"lr"}, "a rate above 0", "0 (nothing is learned)");
  if (betas.size() != 2) {
    check.error("bad_value", {"betas"}, "two numbers", fmt::format("{}", betas.size()),
                "[0.9, 0.999]");
  }
  if (total_steps > 0 && warmup_steps > total_steps) {
    check.error("out_of_range", {"warmup_steps", "total_steps"},
                fmt::format("at most total_steps = {}", total_steps), text(warmup_steps));
  }
  if (schedule == train::Schedule::kWsd && decay_steps == 0) {
    check.error("missing_key", {"decay_steps", "schedule"}, "the length of the final decay of wsd",
                "none", "optim.decay_steps=20");
  }
}

void RewardSection::validate(ConfigChecks& check) const {
  if (path.empty()) return;
  check.require_file("path", path);
  if (!rule.empty()) {
    check.error("conflict", {"rule", "path"}, "a rule or a Python file", "both",
                "reward.rule=\"\"");
  }
}

void SftSection::validate(ConfigChecks& check) const {
  for (const std::string& file : train_files) check.require_file("train_files", file);
  if (steps > 0 && train_files.empty()) {
    check.error("missing_key", {"train_files", "steps"}, "files for the supervised updates",
                "none");
  }
}

void TrainerSection::validate(ConfigChecks& check) const {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) {
    check.error("bad_value", {"name"}, "a name for a folder", "\"" + name + "\"", "run");
  }
  if (resume != "auto" && resume != "never") check.require_file("resume", resume);
  if (replay.empty()) return;
  check.require_file("replay", replay);
  std::error_code ec;
  if (std::filesystem::equivalent(replay, run_dir + "/" + name + "/samples", ec)) {
    check.error("conflict", {"replay", "name"}, "the samples of another run",
                replay + ", which this run would overwrite", "another trainer.name");
  }
}

void TrainConfig::validate(ConfigChecks& check) const {
  if (rollout.n < 2) {
    check.error("conflict", {"rollout.n", "algorithm.adv_estimator"},
                fmt::format("at least 2 answers for each prompt with {}, which compares them",
                            enum_name(algorithm.adv_estimator)),
                text(rollout.n), "8");
  }
  const int64_t mini = actor.mini_batch_size, batch = data.train_batch_size;
  if (mini > batch) {
    check.error("out_of_range", {"actor.mini_batch_size", "data.train_batch_size"},
                fmt::format("at most data.train_batch_size = {}", batch), text(mini), text(batch));
  } else if (mini > 0 && batch % mini != 0) {
    int64_t divisor = mini;
    while (batch % divisor != 0) --divisor;
    check.error("not_divisible", {"actor.mini_batch_size", "data.train_batch_size"},
                fmt::format("a divisor of data.train_batch_size = {}", batch), text(mini),
                text(divisor));
  }
  const int64_t longest = data.max_prompt_length + rollout.max_new_tokens;
  if (actor.micro_batch_tokens < longest) {
    check.error("out_of_range",
                {"actor.micro_batch_tokens", "data.max_prompt_length", "rollout.max_new_tokens"},
                fmt::format("room for one prompt and answer = {}", longest),
                text(actor.micro_batch_tokens), text(longest));
  }
  const int64_t blocks = (longest + kTokensPerKvBlock - 1) / kTokensPerKvBlock;
  if (rollout.kv_blocks > 0 && rollout.kv_blocks < blocks) {
    check.error("out_of_range",
                {"rollout.kv_blocks", "data.max_prompt_length", "rollout.max_new_tokens"},
                fmt::format("room for one prompt and answer = {}", blocks), text(rollout.kv_blocks),
                "0 (chosen by the program)");
  }
  if (algorithm.use_kl_in_reward && actor.use_kl_loss) {
    check.warn("conflict", {"algorithm.use_kl_in_reward", "actor.use_kl_loss"},
               "the KL in the reward or in the loss", "both, so it counts twice",
               "algorithm.use_kl_in_reward=false");
  }
  if (overlong.enable && overlong.buffer_tokens > rollout.max_new_tokens) {
    check.error("out_of_range", {"overlong.buffer_tokens", "rollout.max_new_tokens"},
                fmt::format("at most rollout.max_new_tokens = {}", rollout.max_new_tokens),
                text(overlong.buffer_tokens));
  }
  if (trainer.val_every > 0 && data.val_files.empty() && data.val_fraction == 0) {
    check.warn("conflict", {"trainer.val_every", "data.val_files", "data.val_fraction"},
               "rows to validate on", "none", "data.val_fraction=0.1");
  }
}

}  // namespace keel::rl
