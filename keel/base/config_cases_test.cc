// Runs the configuration cases (verl's key names) through the machinery: a test-only struct with
// the keys that those files use. What needs a model's config.json, a data file's rows or a layout
// of devices is not the business of this module and is skipped by name.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "keel/base/config.h"
#include "keel/base/test_data.h"

namespace keel {
namespace {

enum class Estimator { kGae, kGrpo, kRloo };
constexpr auto enum_names(Estimator) {
  return std::to_array<EnumName<Estimator>>(
      {{Estimator::kGae, "gae"}, {Estimator::kGrpo, "grpo"}, {Estimator::kRloo, "rloo"}});
}
enum class Agg { kToken, kSeqSum, kSeqMean };
constexpr auto enum_names(Agg) {
  return std::to_array<EnumName<Agg>>({{Agg::kToken, "token-mean"},
                                       {Agg::kSeqSum, "seq-mean-token-sum"},
                                       {Agg::kSeqMean, "seq-mean-token-mean"}});
}
enum class KlType { kKl, kAbs, kLowVar };
constexpr auto enum_names(KlType) {
  return std::to_array<EnumName<KlType>>(
      {{KlType::kKl, "kl"}, {KlType::kAbs, "abs"}, {KlType::kLowVar, "low_var_kl"}});
}

struct Data {
  std::vector<std::string> train_files, val_files;
  std::string prompt_key = "prompt", truncation = "error";
  int64_t train_batch_size = 64, gen_batch_size = 0, max_length = 512, micro = 2;
  int64_t max_prompt_length = 512, max_response_length = 512;
  bool shuffle = true;
  std::optional<int64_t> seed;
  template <class V>
  void visit(V& v) {
    v(train_files, "train_files", "rows to train on").must_be_given();
    v(val_files, "val_files", "rows to validate on");
    v(prompt_key, "prompt_key", "column");
    v(train_batch_size, "train_batch_size", "prompts a step").at_least(1);
    v(gen_batch_size, "gen_batch_size", "prompts a draw").at_least(0);
    v(max_length, "max_length", "tokens").at_least(1);
    v(micro, "micro_batch_size_per_gpu", "rows").at_least(1);
    v(max_prompt_length, "max_prompt_length", "tokens").at_least(1);
    v(max_response_length, "max_response_length", "tokens").at_least(1);
    v(truncation, "truncation", "what to do with long prompts");
    v(shuffle, "shuffle", "shuffle");
    v(seed, "seed", "seed");
  }
  void validate(ConfigChecks& check) const {
    for (const auto& f : train_files) check.require_file("train_files", f);
    if (!val_files.empty() && val_files == train_files) {
      check.warn("suspicious_value", {"val_files", "train_files"}, "other rows", "the same file");
    }
  }
};

struct ModelPath {
  std::string path;
  template <class V>
  void visit(V& v) {
    v(path, "path", "model folder");
  }
};

struct Optimizer {
  double lr = 1e-6;
  template <class V>
  void visit(V& v) {
    v(lr, "lr", "peak learning rate").at_least(0);
  }
  void validate(ConfigChecks& check) const {
    if (lr >= 1) check.warn("suspicious_value", {"lr"}, "less than 1", fmt::format("{}", lr));
  }
};

struct Megatron {
  int64_t tp = 1, pp = 1, cp = 1, ep = 1;
  template <class V>
  void visit(V& v) {
    v(tp, "tensor_model_parallel_size", "ranks").at_least(1);
    v(pp, "pipeline_model_parallel_size", "ranks").at_least(1);
    v(cp, "context_parallel_size", "ranks").at_least(1);
    v(ep, "expert_model_parallel_size", "ranks").at_least(1);
  }
};

struct LossMode {
  std::string loss_mode = "vanilla";
  template <class V>
  void visit(V& v) {
    v(loss_mode, "loss_mode", "loss");
  }
};

struct Actor {
  std::string strategy;
  Optimizer optim;
  Megatron megatron;
  LossMode policy_loss;
  int64_t mini = 64, micro = 2;
  std::optional<int64_t> old_micro;
  bool use_kl_loss = false;
  double kl_coef = 0, entropy = 0, clip = 0.2, clip_low = 0.2, clip_high = 0.2, clip_c = 3;
  KlType kl_type = KlType::kKl;
  Agg agg = Agg::kToken;
  template <class V>
  void visit(V& v) {
    v(strategy, "strategy", "name");
    v.section("optim", optim);
    v.section("megatron", megatron);
    v.section("policy_loss", policy_loss);
    v(mini, "ppo_mini_batch_size", "prompts").at_least(1);
    v(micro, "ppo_micro_batch_size_per_gpu", "rows").at_least(1);
    v(old_micro, "ppo_micro_batch_size", "rows, old form").at_least(1);
    v(use_kl_loss, "use_kl_loss", "KL loss");
    v(kl_coef, "kl_loss_coef", "weight").at_least(0);
    v(kl_type, "kl_loss_type", "estimator");
    v(entropy, "entropy_coeff", "weight").at_least(0);
    v(clip, "clip_ratio", "clip").at_least(0);
    v(clip_low, "clip_ratio_low", "clip").range(0, 1);
    v(clip_high, "clip_ratio_high", "clip").at_least(0);
    v(clip_c, "clip_ratio_c", "dual clip").at_least(1);
    v(agg, "loss_agg_mode", "mean over what");
  }
  void validate(ConfigChecks& check) const {
    if (old_micro && check.given("ppo_micro_batch_size_per_gpu")) {
      check.error("conflict", {"ppo_micro_batch_size"}, "one of two keys", "both");
    }
  }
};

struct Ref {
  std::string strategy;
  int64_t micro = 1;
  template <class V>
  void visit(V& v) {
    v(strategy, "strategy", "name");
    v(micro, "log_prob_micro_batch_size_per_gpu", "rows").at_least(1);
  }
};

struct Rollout {
  std::string name;
  int64_t n = 1, top_k = -1, tp = 1, micro = 1;
  double temperature = 1, top_p = 1, memory = 0.5;
  template <class V>
  void visit(V& v) {
    v(name, "name", "engine");
    v(n, "n", "answers per prompt").at_least(1);
    v(temperature, "temperature", "softmax temperature").above(0);
    v(top_p, "top_p", "nucleus").range(0, 1);
    v(top_k, "top_k", "kept ids, -1 = all").at_least(-1);
    v(tp, "tensor_model_parallel_size", "ranks").at_least(1);
    v(memory, "gpu_memory_utilization", "fraction").range(0, 1);
    v(micro, "log_prob_micro_batch_size_per_gpu", "rows").at_least(1);
  }
};

struct ActorRolloutRef {
  ModelPath model;
  Actor actor;
  Ref ref;
  Rollout rollout;
  template <class V>
  void visit(V& v) {
    v.section("model", model);
    v.section("actor", actor);
    v.section("ref", ref);
    v.section("rollout", rollout);
  }
};

struct KlCtrl {
  std::string type = "fixed";
  double kl_coef = 0;
  template <class V>
  void visit(V& v) {
    v(type, "type", "controller");
    v(kl_coef, "kl_coef", "weight");
  }
};

struct FilterGroups {
  bool enable = false;
  std::string metric = "acc";
  int64_t max = 0;
  template <class V>
  void visit(V& v) {
    v(enable, "enable", "dynamic sampling");
    v(metric, "metric", "by what");
    v(max, "max_num_gen_batches", "draws");
  }
};

struct Algorithm {
  Estimator adv_estimator = Estimator::kGae;
  bool use_kl_in_reward = false;
  double gamma = 1, lam = 1;
  std::string kl_penalty = "kl";
  KlCtrl kl_ctrl;
  FilterGroups filter_groups;
  template <class V>
  void visit(V& v) {
    v(adv_estimator, "adv_estimator", "estimator");
    v(use_kl_in_reward, "use_kl_in_reward", "KL in the reward");
    v(gamma, "gamma", "discount").range(0, 1);
    v(lam, "lam", "GAE lambda").range(0, 1);
    v(kl_penalty, "kl_penalty", "estimator");
    v.section("kl_ctrl", kl_ctrl);
    v.section("filter_groups", filter_groups);
  }
};

struct Trainer {
  int64_t nnodes = 1, gpus = 1, epochs = 1, save = 0, test = 0;
  std::vector<std::string> logger;
  std::string project, experiment, dir;
  template <class V>
  void visit(V& v) {
    v(nnodes, "nnodes", "nodes").at_least(1);
    v(gpus, "n_gpus_per_node", "devices").at_least(1);
    v(epochs, "total_epochs", "epochs").at_least(1);
    v(save, "save_freq", "steps");
    v(test, "test_freq", "steps");
    v(logger, "logger", "sinks");
    v(project, "project_name", "name");
    v(experiment, "experiment_name", "name");
    v(dir, "default_local_dir", "folder");
  }
};

struct Critic {
  ModelPath model;
  Optimizer optim;
  int64_t micro = 1;
  double clip = 0.5;
  template <class V>
  void visit(V& v) {
    v.section("model", model);
    v.section("optim", optim);
    v(micro, "ppo_micro_batch_size_per_gpu", "rows").at_least(1);
    v(clip, "cliprange_value", "clip").at_least(0);
  }
};

struct Reward {
  struct Manager {
    std::string name = "naive";
    template <class V>
    void visit(V& v) {
      v(name, "name", "manager");
    }
  } reward_manager;
  struct Overlong {
    bool enable = false;
    int64_t len = 0;
    double factor = 1;
    template <class V>
    void visit(V& v) {
      v(enable, "enable", "penalty");
      v(len, "len", "tokens");
      v(factor, "penalty_factor", "factor");
    }
  };
  struct Kwargs {
    Overlong overlong;
    template <class V>
    void visit(V& v) {
      v.section("overlong_buffer_cfg", overlong);
    }
  } reward_kwargs;
  template <class V>
  void visit(V& v) {
    v.section("reward_manager", reward_manager);
    v.section("reward_kwargs", reward_kwargs);
  }
};

struct VerlConfig {  // PPO trainer, SFT trainer and reward model in one
  Data data;
  ActorRolloutRef actor_rollout_ref;
  Algorithm algorithm;
  Trainer trainer;
  Critic critic;
  Reward reward;
  ModelPath model;
  Optimizer optim;
  template <class V>
  void visit(V& v) {
    v.section("data", data);
    v.section("actor_rollout_ref", actor_rollout_ref);
    v.section("algorithm", algorithm);
    v.section("trainer", trainer);
    v.section("critic", critic);
    v.section("reward", reward);
    v.section("model", model);
    v.section("optim", optim);
  }
  void validate(ConfigChecks& check) const {
    const auto& rl = actor_rollout_ref;
    const bool supervised = check.given("model.path");
    if (!supervised && !check.given("actor_rollout_ref.model.path")) {
      check.error("missing_key", {"actor_rollout_ref.model.path"}, "a model", "none");
    }
    if (!supervised) check.require_file("actor_rollout_ref.model.path", rl.model.path);
    const bool group = algorithm.adv_estimator != Estimator::kGae;
    if (!supervised && group && rl.rollout.n == 1) {
      check.error("conflict", {"actor_rollout_ref.rollout.n", "algorithm.adv_estimator"},
                  "at least 2 answers per prompt", "1");
    }
    if (!group && check.given("algorithm.adv_estimator") && critic.model.path.empty()) {
      check.error("conflict", {"algorithm.adv_estimator"}, "a critic section with gae", "none");
    }
    if (algorithm.use_kl_in_reward && rl.actor.use_kl_loss) {
      check.warn("conflict", {"algorithm.use_kl_in_reward"}, "KL once", "in reward and loss");
    }
    if (supervised) return;
    if (rl.actor.mini > data.train_batch_size) {
      check.error("out_of_range",
                  {"actor_rollout_ref.actor.ppo_mini_batch_size", "data.train_batch_size"},
                  "at most the batch", fmt::format("{}", rl.actor.mini));
    } else if (data.train_batch_size % rl.actor.mini != 0) {
      check.error("not_divisible",
                  {"actor_rollout_ref.actor.ppo_mini_batch_size", "data.train_batch_size"},
                  "a divisor of the batch", fmt::format("{}", rl.actor.mini));
    }
  }
};

// What the cases expect beyond this module: device layouts, model files, data rows.
const std::set<std::string> kElsewhere = {
    "micro_not_dividing.yaml", "tp_not_dividing_world.yaml",   "product_not_dividing_world.yaml",
    "kv_heads_below_tp.yaml",  "pp_not_dividing_layers.yaml",  "ep_not_dividing_experts.yaml",
    "ep_on_dense.yaml",        "rollout_tp_not_dividing.yaml", "length_above_model.yaml",
    "batch_above_rows.yaml",   "prompt_key_absent_column.yaml"};

struct InFolder {  // the cases' paths are relative to their folder
  explicit InFolder(const std::string& folder) : before(std::filesystem::current_path()) {
    std::filesystem::current_path(folder);
  }
  ~InFolder() { std::filesystem::current_path(before); }
  std::filesystem::path before;
};

std::vector<Json> read_cases(const std::string& path) {
  std::ifstream in(path);
  std::vector<Json> out;
  for (std::string line; std::getline(in, line);) out.push_back(Json::parse(line));
  return out;
}

std::string local(std::string file) { return file.erase(0, std::string("config/").size()); }

bool kind_matches(const Json& want, const std::string& kind) {
  const auto& also = want["also_ok"];
  return kind == want["kind"] || std::find(also.begin(), also.end(), kind) != also.end();
}

bool matches(const Json& want, const ConfigFinding& f) {
  if (!kind_matches(want, f.kind)) return false;
  if (want["field"].is_string() && want["field"] != f.field) return false;
  if (want.contains("line") && want["line"].is_number() && want["line"] != f.line) return false;
  if (want.contains("suggest") && want["suggest"] != f.suggest) return false;
  const bool error = f.level == ConfigFinding::Level::kError;
  return want["level"] == "error" ? error : want["level"] != "warn" || !error;
}

TEST(ConfigCases, Bad) {
  const std::string folder = test::cases("data/config");
  if (folder.empty()) GTEST_SKIP() << "no ../shared/cases/data/config";
  InFolder in(folder);
  int checked = 0;
  for (const Json& want : read_cases("bad/expected.jsonl")) {
    const bool from_file = want.contains("file");
    const std::string file = local(want[from_file ? "file" : "base"]);
    if (kElsewhere.contains(std::filesystem::path(file).filename())) continue;
    VerlConfig config;
    const auto args = want.value("args", std::vector<std::string>());
    const auto report = load_config(config, read_config_input(file, args));
    const auto& all = report.findings.all();
    const bool found = std::any_of(all.begin(), all.end(),
                                   [&](const ConfigFinding& f) { return matches(want, f); });
    const std::string level = want["level"];
    bool accepted = false;
    if (level == "ok_or_error" || level == "error_or_ok") {
      accepted = all.empty();
      if (accepted && want.contains("value_if_accepted")) {
        const ConfigFields fields = config_fields(config);
        const auto yaml = value_to_yaml(fields.find(want["field"])->get());
        EXPECT_EQ(std::stod(yaml), want["value_if_accepted"].get<double>()) << want;
      }
    }
    EXPECT_TRUE(found || accepted) << want << "\n" << report.findings.text();
    EXPECT_LE(all.size(), 3u) << want << "\n" << report.findings.text();
    ++checked;
  }
  EXPECT_GE(checked, 90);
}

TEST(ConfigCases, Good) {
  const std::string folder = test::cases("data/config");
  if (folder.empty()) GTEST_SKIP() << "no ../shared/cases/data/config";
  InFolder in(folder);
  for (const Json& want : read_cases("good/expected.jsonl")) {
    VerlConfig config;
    const auto report = load_config(config, read_config_input(local(want["file"]), want["args"]));
    EXPECT_EQ(report.findings.text(), "") << want;
    const ConfigFields fields = config_fields(config);
    for (const auto& [path, value] : want["values"].items()) {
      const OrderedJson nested = dump_json(fields);
      std::string pointer = "/" + path;
      std::replace(pointer.begin(), pointer.end(), '.', '/');
      Json got = nested[OrderedJson::json_pointer(pointer)];
      if (got.is_array() && got.size() == 1 && !value.is_array()) got = Json(got[0]);
      EXPECT_EQ(got, value) << path;
    }
    // What was read can be written and read again.
    VerlConfig again;
    const auto second = load_config(again, {"again.yaml", dump_yaml(fields), {}});
    if (!want.contains("mode")) {
      EXPECT_EQ(second.findings.text(), "");
    }
    EXPECT_EQ(dump_json(config_fields(again)), dump_json(fields));
  }
}

}  // namespace
}  // namespace keel
