#include "keel/rl/train_config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "keel/base/test_data.h"

namespace keel::cli {
namespace {

constexpr const char* kGood = R"(
model:
  path: tests/golden/models/llama3
data:
  train_files: tests/golden/README.md
  train_batch_size: 64
)";

struct InSourceFolder {
  InSourceFolder() : before(std::filesystem::current_path()) {
    std::filesystem::current_path(KEEL_SOURCE_DIR);
  }
  ~InSourceFolder() { std::filesystem::current_path(before); }
  std::filesystem::path before;
};

ConfigReport load(std::vector<std::string> overrides, const std::string& yaml = kGood) {
  InSourceFolder in;
  rl::TrainConfig config;
  return load_config(config, {"t.yaml", yaml, std::move(overrides)});
}

TEST(TrainConfig, DefaultsAreGood) { EXPECT_EQ(load({}).findings.text(), ""); }

// One fault each, of the kinds in the configuration cases, in Keel's own keys.
TEST(TrainConfig, RulesOverSeveralFields) {
  struct Case {
    std::vector<std::string> overrides;
    std::string kind, field;
    bool error;
    std::string suggest = "";
  };
  const std::vector<Case> cases = {
      {{"actor.mini_batch_size=19"}, "not_divisible", "actor.mini_batch_size", true},
      {{"actor.mini_batch_size=128"}, "out_of_range", "actor.mini_batch_size", true},
      {{"actor.micro_batch_tokens=100"}, "out_of_range", "actor.micro_batch_tokens", true},
      {{"rollout.n=1"}, "conflict", "rollout.n", true},
      {{"rollout.n=1", "algorithm.adv_estimator=rloo"}, "conflict", "rollout.n", true},
      {{"rollout.n=-4"}, "out_of_range", "rollout.n", true},
      {{"rollout.temperature=0"}, "out_of_range", "rollout.temperature", true},
      {{"rollout.temperature=70"}, "suspicious_value", "rollout.temperature", false},
      {{"rollout.top_p=1.5"}, "out_of_range", "rollout.top_p", true},
      {{"rollout.top_p=0"}, "out_of_range", "rollout.top_p", true},
      {{"rollout.max_batched_tokens=8"}, "out_of_range", "rollout.max_batched_tokens", true},
      {{"rollout.kv_blocks=63"}, "out_of_range", "rollout.kv_blocks", true},
      {{"actor.clip_ratio_low=1.2"}, "out_of_range", "actor.clip_ratio_low", true},
      {{"actor.clip_ratio_high=-0.2"}, "out_of_range", "actor.clip_ratio_high", true},
      {{"actor.clip_ratio_c=1"}, "out_of_range", "actor.clip_ratio_c", true},
      {{"actor.loss_agg_mode=token_mean"}, "bad_value", "actor.loss_agg_mode", true, "token-mean"},
      {{"actor.loss=gspo", "actor.loss_agg_mode=seq-mean-token-sum"},
       "conflict",
       "actor.loss_agg_mode",
       false},
      {{"actor.kl_loss_type=k4"}, "bad_value", "actor.kl_loss_type", true},
      {{"actor.kl_loss_coef=0.1"}, "conflict", "actor.use_kl_loss", false},
      {{"actor.use_kl_loss=true", "actor.kl_loss_coef=0"},
       "suspicious_value",
       "actor.kl_loss_coef",
       false},
      {{"algorithm.adv_estimator=gpro"}, "bad_value", "algorithm.adv_estimator", true, "grpo"},
      {{"algorithm.use_kl_in_reward=true", "actor.use_kl_loss=true"},
       "conflict",
       "algorithm.use_kl_in_reward",
       false},
      {{"algorithm.use_kl_in_reward=true", "algorithm.kl_coef=0"},
       "suspicious_value",
       "algorithm.kl_coef",
       false},
      {{"algorithm.norm_adv_by_std=false", "algorithm.adv_estimator=rloo"},
       "conflict",
       "algorithm.norm_adv_by_std",
       false},
      {{"optim.lr=-1e-6"}, "out_of_range", "optim.lr", true},
      {{"optim.lr=.nan"}, "out_of_range", "optim.lr", true},
      {{"optim.lr=1"}, "suspicious_value", "optim.lr", false},
      {{"optim.lr=0"}, "suspicious_value", "optim.lr", false},
      {{"optim.betas=[0.9]"}, "bad_value", "optim.betas", true},
      {{"optim.betas=[0.9,1]"}, "out_of_range", "optim.betas[1]", true},
      {{"optim.warmup_steps=20", "optim.total_steps=10"},
       "out_of_range",
       "optim.warmup_steps",
       true},
      {{"optim.schedule=wsd"}, "missing_key", "optim.decay_steps", true},
      {{"data.train_files=tests/golden/REDME.md"},
       "missing_file",
       "data.train_files",
       true,
       "README.md"},
      {{"data.train_files=[]"}, "missing_key", "data.train_files", true},
      {{"~data.train_files"}, "missing_key", "data.train_files", true},
      {{"data.val_files=tests/golden/./README.md"}, "suspicious_value", "data.val_files", false},
      {{"data.val_files=none.parquet"}, "missing_file", "data.val_files", true},
      {{"data.val_files=CMakeLists.txt", "data.val_fraction=0.5"},
       "conflict",
       "data.val_fraction",
       true},
      {{"data.max_rows=32"}, "out_of_range", "data.train_batch_size", true},
      {{"data.train_batch_size=0"}, "out_of_range", "data.train_batch_size", true},
      {{"data.train_batch_size=64.5"}, "wrong_type", "data.train_batch_size", true},
      {{"model.path="}, "missing_key", "model.path", true},
      {{"model.path=tests/golden/models/lama3"}, "missing_file", "model.path", true, "llama3"},
      {{"model.path=no-such-org/no-such-model"}, "missing_file", "model.path", true},
      {{"model.dtype=fp16"}, "bad_value", "model.dtype", true},
      {{"overlong.enable=true", "overlong.buffer_tokens=600"},
       "out_of_range",
       "overlong.buffer_tokens",
       true},
      {{"reward.path=none.py"}, "missing_file", "reward.path", true},
      {{"reward.path=CMakeLists.txt", "reward.rule=gsm8k"}, "conflict", "reward.rule", true},
      {{"trainer.val_every=5"}, "conflict", "trainer.val_every", false},
      {{"trainer.name=a/b"}, "bad_value", "trainer.name", true},
      {{"trainer.resume=runs/none"}, "missing_file", "trainer.resume", true},
      {{"data.n=4"}, "unknown_key", "data.n", true, "rollout.n"},
      {{"rollout.temprature=1"}, "unknown_key", "rollout.temprature", true, "rollout.temperature"},
      {{"actor_rollout_ref.actor.ppo_mini_batch_size=8"},
       "unknown_key",
       "actor_rollout_ref.actor.ppo_mini_batch_size",
       true,
       "actor.mini_batch_size"},
      {{"data.max_response_length=8"},
       "unknown_key",
       "data.max_response_length",
       true,
       "rollout.max_new_tokens"},
      {{"trainer.total_epochs=8"}, "unknown_key", "trainer.total_epochs", true, "trainer.epochs"},
  };
  for (const Case& c : cases) {
    const ConfigReport r = load(c.overrides);
    ASSERT_EQ(r.findings.all().size(), 1u) << c.overrides[0] << "\n" << r.findings.text();
    const ConfigFinding& f = r.findings.all()[0];
    EXPECT_EQ(f.kind, c.kind) << f.text();
    EXPECT_EQ(f.field, c.field) << f.text();
    EXPECT_EQ(f.suggest, c.suggest) << f.text();
    EXPECT_EQ(f.level == ConfigFinding::Level::kError, c.error) << f.text();
  }
}

TEST(TrainConfig, SeedsFallBackToTheRun) {
  rl::TrainConfig c;
  InSourceFolder in;
  load_config(c, {"t", kGood, {"trainer.seed=7", "data.seed=3"}});
  EXPECT_EQ(c.data_seed(), 3u);
  EXPECT_EQ(c.rollout_seed(), 7u);
  EXPECT_EQ(c.mini_batch_size(), 64);
}

TEST(TrainConfig, DumpReadsBack) {
  InSourceFolder in;
  rl::TrainConfig c, d;
  load_config(c,
              {"t", kGood, {"rollout.stop=['\n','#']", "optim.lr=3e-7", "trainer.name=\"a b\""}});
  EXPECT_EQ(load_config(d, {"d", dump_yaml(config_fields(c)), {}}).findings.text(), "");
  EXPECT_EQ(config_hash(config_fields(c)), config_hash(config_fields(d)));
}

// The checked-in list of all options. After a wanted change:
//   build/release/bin/keel config --list > keel/cli/options_list.txt
TEST(TrainConfig, OptionListIsCheckedIn) {
  std::ifstream in(std::string(KEEL_SOURCE_DIR) + "/keel/cli/options_list.txt");
  std::stringstream want;
  want << in.rdbuf();
  rl::TrainConfig config;
  std::string got;
  for (const ConfigOption& o : config_options(config)) {
    got += fmt::format("{} = {} # {}; {}\n", o.path, o.fallback, o.help, o.type);
  }
  EXPECT_EQ(got, want.str());
}

TEST(TrainConfig, EveryOptionHasHelpAndCanBeSet) {
  rl::TrainConfig config;
  const ConfigFields fields = config_fields(config);
  for (const ConfigField& f : fields.fields()) {
    EXPECT_GE(f.help.size(), 8u) << f.path;
    EXPECT_LE(f.help.size(), 90u) << f.path;
  }
}

}  // namespace
}  // namespace keel::cli
