#include "keel/rl/trainer.h"

#include <cmath>
#include <filesystem>
#include <optional>

#include "keel/base/cpu.h"
#include "keel/base/error.h"
#include "keel/base/log.h"
#include "keel/base/rng.h"
#include "keel/base/thread_pool.h"
#include "keel/data/sampler.h"
#include "keel/model/load.h"
#include "keel/observe/metric_names.h"
#include "keel/observe/trace.h"
#include "keel/ops/isa.h"
#include "keel/ops/numerics.h"
#include "keel/reward/shaping.h"
#include "keel/rl/generator.h"
#include "keel/rl/prepare.h"
#include "keel/rl/replay.h"
#include "keel/rl/run_files.h"
#include "keel/rl/sft.h"
#include "keel/rl/step_metrics.h"
#include "keel/rl/stopwatch.h"
#include "keel/rl/validation.h"
#include "keel/spec/model_name.h"
#include "keel/train/checkpoint.h"

namespace keel::rl {
namespace {

namespace fs = std::filesystem;

// Purposes of random streams; mixed into the seeds.
enum Stream : uint64_t { kTrainStream = 1, kValidationStream = 2 };

ops::DType compute_type(ComputeType t) {
  return t == ComputeType::kBf16 ? ops::DType::kBF16 : ops::DType::kF32;
}

train::AdamWConfig adam_config(const OptimSection& c) {
  return {c.lr, c.betas[0], c.betas[1], c.eps, c.weight_decay, c.grad_clip};
}

struct Batch {
  std::vector<Experience> answers;  // of this rank
  int64_t gen_batches = 1;          // batches of prompts that were drawn for them
};

class Trainer {
 public:
  Trainer(const TrainConfig& config, std::shared_ptr<parallel::Group> group,
          const TrainerHooks& hooks)
      : config_(config), group_(std::move(group)), hooks_(hooks), folder_(run_folder(config)) {}

  void run();

 private:
  void load();
  void warm_up();
  void resume();
  StepRecord step(int64_t number);
  Batch sample_batch(int64_t number, StepRecord& record);
  Batch replay_batch(int64_t number, StepRecord& record);
  std::vector<Experience> sample_round(int64_t number, int64_t round, StepRecord& record);
  void score(std::vector<Experience>& batch, const PromptSet& set);
  void shape_reward(Experience& e) const;
  void update(std::vector<Experience>& batch, StepRecord& record);
  void validate(StepRecord& record);
  void save(int64_t number);
  void stop_if_interrupted(int64_t finished_step);
  rollout::Engine::Progress progress(const char* phase, int64_t step, int64_t total, bool can_stop);
  bool interrupted() const;
  int64_t steps_of_run() const;
  int64_t total_updates() const;

  const TrainConfig& config_;
  std::shared_ptr<parallel::Group> group_;
  const TrainerHooks& hooks_;
  std::string folder_;

  std::shared_ptr<const Tokenizer> tokenizer_;
  PromptSet train_, val_;
  std::unique_ptr<Scorer> scorer_;
  std::unique_ptr<model::Model> model_, reference_;
  std::unique_ptr<train::AdamW> optimizer_;
  std::unique_ptr<Generator> generator_;
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<Replay> replay_;  // null: answers are sampled
  std::unique_ptr<RunFiles> files_;
  int64_t first_step_ = 1;
  int64_t num_steps_ = 0;
  int64_t saved_step_ = 0;
  Json sampler_state_;  // after the last finished step
  double best_val_ = -INFINITY;
  int64_t best_step_ = 0;
  bool numerics_match_ = true;
};

int64_t Trainer::steps_of_run() const {
  if (config_.trainer.steps > 0) return config_.trainer.steps;
  return std::max<int64_t>(
      1, std::ssize(train_.prompts) * config_.trainer.epochs / config_.data.train_batch_size);
}

int64_t Trainer::total_updates() const {
  if (config_.optim.total_steps > 0) return config_.optim.total_steps;
  return num_steps_ * config_.actor.epochs *
         (config_.data.train_batch_size / config_.mini_batch_size());
}

void Trainer::load() {
  const auto& t = config_.trainer;
  if (t.threads > 0) set_num_threads(static_cast<int>(t.threads));
  if (!config_.numerics.isa.empty()) ops::pin_isa(config_.numerics.isa);
  const std::string path = resolve_model(config_.model.path);
  // Everything that can be wrong with the input is looked at before weights are read.
  tokenizer_ = Tokenizer::load(path);
  train_ = load_prompts(config_.data.train_files, config_.data, config_.data_seed(), *tokenizer_);
  if (config_.data.val_fraction > 0 && std::ssize(train_.prompts) > 1) {
    val_ = hold_out(train_, config_.data.val_fraction, config_.data_seed());
  }
  if (!config_.data.val_files.empty()) {
    DataSection all = config_.data;
    all.max_rows = 0;
    val_ = load_prompts(config_.data.val_files, all, config_.data_seed(), *tokenizer_);
  }
  KEEL_REQUIRE(std::ssize(train_.prompts) >= config_.data.train_batch_size,
               "[data.train_batch_size] expected at most the {} rows of the data, got {}; try a "
               "smaller batch",
               train_.prompts.size(), config_.data.train_batch_size);
  const ModelDir dir(path);  // unmapped at the end: the weights live in packed form from then on
  for (const auto& w : dir.warnings()) spdlog::warn("{}", w.line());
  const int64_t longest = config_.data.max_prompt_length + config_.rollout.max_new_tokens;
  KEEL_REQUIRE(longest <= dir.spec().max_positions,
               "[rollout.max_new_tokens] expected prompt and answer within the model's {} "
               "positions, got {} + {}",
               dir.spec().max_positions, config_.data.max_prompt_length,
               config_.rollout.max_new_tokens);
  files_ = std::make_unique<RunFiles>(folder_, group_->rank(), config_.trainer, hooks_.config_yaml);
  // Only rank 0 has a run folder.
  const std::string log = group_->rank() == 0 ? folder_ + "/reward_output.txt" : "";
  scorer_ = std::make_unique<Scorer>(config_.reward, log);
  scorer_->check(train_.data);
  scorer_->check(val_.data);

  model_ = model::load_model(dir, compute_type(config_.model.dtype));
  model_->reserve_positions(longest);
  model_->make_trainable();
  if (config_.actor.use_kl_loss || config_.algorithm.use_kl_in_reward) {
    reference_ = model::load_model(dir, model_->dtype());
    reference_->reserve_positions(longest);
  }
  optimizer_ = std::make_unique<train::AdamW>(model_->parameters(), adam_config(config_.optim));
  sampler_ =
      std::make_unique<Sampler>(std::ssize(train_.prompts), train_.data.fingerprint,
                                SamplerOptions{config_.data_seed(), config_.data.shuffle, true});
  if (!t.replay.empty()) {
    replay_ = std::make_unique<Replay>(config_, train_, model_->spec().vocab);
  }
  if (!replay_ || !val_.prompts.empty()) {
    generator_ = std::make_unique<Generator>(*model_, tokenizer_, config_.rollout, longest);
  }
  num_steps_ = steps_of_run();
}

void Trainer::resume() {
  std::string root = folder_ + "/checkpoints";
  auto steps = train::list_checkpoints(root);
  if (config_.trainer.resume == "never") steps.clear();
  if (steps.empty() && config_.trainer.resume != "auto" && config_.trainer.resume != "never") {
    // A checkpoint of another run starts this one; its own checkpoints win once there are some.
    const fs::path folder = fs::path(config_.trainer.resume).lexically_normal();
    root = (folder.has_filename() ? folder : folder.parent_path()).parent_path().string();
    steps = train::list_checkpoints(root);
    std::erase_if(
        steps, [&](int64_t s) { return !fs::equivalent(train::checkpoint_dir(root, s), folder); });
    KEEL_REQUIRE(!steps.empty(),
                 "[trainer.resume] expected a complete checkpoint folder, got {}; try "
                 ".../checkpoints/step_N",
                 config_.trainer.resume);
  }
  if (steps.empty()) {
    files_->open_records(std::nullopt, num_steps_);
    return;
  }
  const int64_t step = steps.back();
  const Json state = train::load_checkpoint(root, step, *optimizer_);
  model_->publish();
  first_step_ = step + 1;
  saved_step_ = step;
  best_val_ = state.value("best_val", -1e300);
  best_step_ = state.value("best_step", int64_t{0});
  if (!sampler_->restore(state.at("sampler"))) {
    spdlog::warn("the training data changed since step {}: its order starts anew", step);
  }
  const std::string now = ops::numerics_id(model_->dtype());
  if (state.value("numerics_id", now) != now) {
    spdlog::warn(
        "the checkpoint was written with numerics {}, this machine has {}: results will differ in "
        "the last "
        "bits and old log-probs are computed again",
        state.value("numerics_id", ""), now);
    numerics_match_ = false;
  }
  files_->open_records(step, num_steps_);
  spdlog::info("resumed from step {}", step);
}

bool Trainer::interrupted() const { return hooks_.interrupted && hooks_.interrupted(); }

// can_stop: an interrupt ends the phase; validation is finished first, because its step already
// trained.
rollout::Engine::Progress Trainer::progress(const char* phase, int64_t step, int64_t total,
                                            bool can_stop) {
  files_->console().phase(step, phase, total, "answers");
  return [this, can_stop](int64_t finished, int64_t, int64_t) {
    files_->console().progress(finished);
    return !(can_stop && interrupted());
  };
}

void Trainer::score(std::vector<Experience>& batch, const PromptSet& set) {
  std::vector<Answer> answers;
  for (const Experience& e : batch)
    answers.push_back({&set.data.rows[static_cast<size_t>(e.row)], e.text, e.sample.answer()});
  auto scores = scorer_->score(answers);
  for (size_t i = 0; i < batch.size(); ++i) {
    batch[i].score = std::move(scores[i]);
    shape_reward(batch[i]);
  }
}

void Trainer::shape_reward(Experience& e) const {
  e.reward = e.score.value;
  if (!config_.overlong.enable) return;
  e.reward += overlong_penalty({config_.rollout.max_new_tokens, config_.overlong.buffer_tokens,
                                config_.overlong.penalty_factor},
                               e.num_answer_tokens());
}

// One round of generation: the rows come from the sampler, this rank takes its share.
std::vector<Experience> Trainer::sample_round(int64_t number, int64_t round, StepRecord& record) {
  const auto rows = sampler_->next(config_.data.train_batch_size);
  const int64_t ranks = group_->size(), share = (std::ssize(rows) + ranks - 1) / ranks;
  const int64_t begin = std::min(std::ssize(rows), group_->rank() * share),
                end = std::min(std::ssize(rows), begin + share);
  GenerationPlan plan;
  plan.rows.assign(rows.begin() + begin, rows.begin() + end);
  plan.n = config_.rollout.n;
  plan.params = sampling_params(config_.rollout);
  plan.seed = mix_key(mix_key(config_.rollout_seed(), kTrainStream), static_cast<uint64_t>(number));
  plan.first_place = round * config_.data.train_batch_size + begin;
  Stopwatch generating;
  auto batch = generator_->generate(
      train_, plan, progress("generate", number, std::ssize(plan.rows) * plan.n, true));
  files_->console().end_phase();
  stop_if_interrupted(number - 1);
  add_time(record, "gen", generating);
  Stopwatch scoring;
  score(batch, train_);
  add_time(record, "reward", scoring);
  return batch;
}

// With dynamic sampling (DAPO): rounds until the batch is full of groups with signal, bounded.
Batch Trainer::sample_batch(int64_t number, StepRecord& record) {
  auto batch = sample_round(number, 0, record);
  if (!config_.dynamic_sampling.enable) return {std::move(batch), 1};
  std::vector<Experience> kept, flat;
  int64_t rounds = 1;
  const auto n = static_cast<size_t>(config_.rollout.n);
  const double wanted = static_cast<double>(config_.data.train_batch_size);
  double found = 0;
  while (true) {
    for (size_t i = 0; i < batch.size(); i += n) {
      const bool same =
          std::all_of(batch.begin() + static_cast<std::ptrdiff_t>(i),
                      batch.begin() + static_cast<std::ptrdiff_t>(i + n),
                      [&](const Experience& e) { return e.reward == batch[i].reward; });
      auto& to = same ? flat : kept;
      for (size_t j = i; j < i + n; ++j) to.push_back(std::move(batch[j]));
    }
    found = static_cast<double>(kept.size() / n);
    group_->all_reduce_sum(std::span<double>(&found, 1));
    if (found >= wanted || rounds >= config_.dynamic_sampling.max_batches) break;
    batch = sample_round(number, rounds++, record);
  }
  record.set(metric::kGenBatches, static_cast<double>(rounds));
  record.set(metric::kDroppedGroups, static_cast<double>(flat.size() / n));
  const auto share =
      static_cast<size_t>((config_.data.train_batch_size + group_->size() - 1) / group_->size()) *
      n;
  if (found < wanted) {
    const auto fallback = config_.dynamic_sampling.fallback;
    KEEL_REQUIRE(fallback != SamplingFallback::kStop,
                 "[dynamic_sampling] expected {} groups with differing rewards, got {} in {} "
                 "batches; try easier or "
                 "harder prompts, a larger rollout.n, or dynamic_sampling.fallback=partial",
                 config_.data.train_batch_size, found, rounds);
    while (fallback == SamplingFallback::kFill && kept.size() < share && !flat.empty()) {
      kept.push_back(std::move(flat.front()));
      flat.erase(flat.begin());
    }
  }
  if (kept.size() > share) kept.resize(share);
  return {std::move(kept), rounds};
}

Batch Trainer::replay_batch(int64_t number, StepRecord& record) {
  stop_if_interrupted(number - 1);
  const Stopwatch watch;
  ReplayedStep recorded = replay_->read(number);
  // The order of rows goes on as it did, so that epochs and checkpoints are those of the recording.
  for (int64_t i = 0; i < recorded.gen_batches; ++i) sampler_->next(config_.data.train_batch_size);
  const std::string now = ops::numerics_id(model_->dtype());
  if (numerics_match_ && !recorded.answers.empty() && recorded.numerics_id != now) {
    spdlog::warn(
        "the samples of step {} were recorded with numerics {}, this run has {}: old log-probs are "
        "computed again",
        number, recorded.numerics_id, now);
    numerics_match_ = false;
  }
  auto own =
      share_of(std::move(recorded.answers), config_.rollout.n, group_->rank(), group_->size());
  for (Experience& e : own) shape_reward(e);
  add_time(record, "replay", watch);
  return {std::move(own), recorded.gen_batches};
}

void Trainer::update(std::vector<Experience>& batch, StepRecord& record) {
  const UpdateConfig u = update_config(config_);
  // Mini-batches are cut by prompts; with several ranks each takes its share of every mini-batch.
  const int64_t minis =
      std::max<int64_t>(1, config_.data.train_batch_size / config_.mini_batch_size());
  const auto n = config_.rollout.n;
  const int64_t prompts = (std::ssize(batch) + n - 1) / n;
  std::vector<UpdateStats> all;
  train::ScheduleConfig schedule{config_.optim.schedule, config_.optim.warmup_steps,
                                 total_updates(), config_.optim.decay_steps,
                                 config_.optim.min_lr_ratio};
  double lr = 0;
  for (int64_t epoch = 0; epoch < config_.actor.epochs; ++epoch) {
    for (int64_t mini = 0; mini < minis; ++mini) {
      const int64_t begin = prompts * mini / minis * n,
                    end = std::min(std::ssize(batch), prompts * (mini + 1) / minis * n);
      std::vector<const Experience*> part;
      for (int64_t i = begin; i < end; ++i) part.push_back(&batch[static_cast<size_t>(i)]);
      const double factor =
          train::lr_factor(schedule, optimizer_->num_updates() + optimizer_->num_skipped());
      lr = config_.optim.lr * factor;
      all.push_back(update_policy(*model_, *optimizer_, *group_, part, u, factor));
    }
  }
  add_update_metrics(all, record);
  record.set(metric::kLearningRate, lr);
  if (u.kl_coef > 0) record.set(metric::kKlCoef, u.kl_coef);
  // The first update's forward pass saw the weights that sampled: its probabilities must be the
  // recorded ones.
  const UpdateStats& first = all.front();
  const double mean = first.diff_sum / std::max(1.0, first.num_tokens);
  record.set(metric::kRolloutDiffValid, 1);
  record.set(metric::kRolloutDiffMax, first.diff_max);
  record.set(metric::kRolloutDiffMean, mean);
  record.set(
      metric::kRolloutDiffStd,
      std::sqrt(std::max(0.0, first.diff_square / std::max(1.0, first.num_tokens) - mean * mean)));
  record.set(metric::kExact, numerics_match_ ? 1 : 0);
}

void Trainer::validate(StepRecord& record) {
  if (val_.prompts.empty()) return;
  const bool before_training = record.step() == 0;  // later ones follow an update: not lost
  const Stopwatch watch;
  const int64_t ranks = group_->size(), rows = std::ssize(val_.prompts),
                share = (rows + ranks - 1) / ranks;
  GenerationPlan plan;
  plan.first_place = std::min(rows, group_->rank() * share);
  for (int64_t i = plan.first_place; i < std::min(rows, plan.first_place + share); ++i)
    plan.rows.push_back(i);
  plan.n = config_.trainer.val_n;
  plan.params = sampling_params(config_.rollout);
  plan.params.temperature = static_cast<float>(config_.trainer.val_temperature);
  plan.params.top_k = 0;
  plan.params.top_p = 1;
  plan.params.min_p = 0;
  plan.seed = mix_key(config_.rollout_seed(), kValidationStream);
  auto answers = generator_->generate(
      val_, plan,
      progress("validate", record.step(), std::ssize(plan.rows) * plan.n, before_training));
  files_->console().end_phase();
  if (before_training) stop_if_interrupted(0);
  score(answers, val_);
  files_->write_validation(record.step(), answers, val_);
  const double mean = add_validation_metrics(*group_, answers, val_.data.rows, plan.n, record);
  if (mean > best_val_) {
    best_val_ = mean;
    best_step_ = record.step();
  }
  add_time(record, "testing", watch);
}

StepRecord Trainer::step(int64_t number) {
  const trace::Span span("step", "step", number);
  Stopwatch whole;
  StepRecord record(number);
  record.set(metric::kGlobalStep, static_cast<double>(number));
  auto [batch, gen_batches] = replay_ ? replay_batch(number, record) : sample_batch(number, record);
  record.set(metric::kEpoch, static_cast<double>(sampler_->epoch()));
  fill_log_probs(config_, *model_, reference_.get(),
                 config_.actor.recompute_old_log_probs || !numerics_match_, batch, record);
  Stopwatch advantages;
  fill_advantages(config_.algorithm, *group_, batch);
  add_time(record, "adv", advantages);
  add_sample_metrics(*group_, batch, config_.rollout.max_new_tokens, config_.data.max_prompt_length,
                     record);
  double total = static_cast<double>(batch.size());
  group_->all_reduce_sum(std::span<double>(&total, 1));
  if (total > 0) {
    files_->console().phase(number, "update");
    Stopwatch updating;
    update(batch, record);
    add_time(record, "update_actor", updating);
    files_->console().end_phase();
  } else {
    spdlog::warn("step {}: no group with differing rewards was found, nothing to train on", number);
  }
  Stopwatch dumping;
  files_->write_samples(number, batch, train_, {static_cast<int64_t>(total), gen_batches});
  add_time(record, "dump_rollout_generations", dumping);
  const bool last = number == num_steps_;
  if (last || (config_.trainer.val_every > 0 && number % config_.trainer.val_every == 0))
    validate(record);
  const double seconds = whole.seconds();
  record.set(metric::kTimeStep, seconds);
  record.set("perf/time_per_step", seconds);
  record.set("perf/throughput",
             record.get("perf/total_num_tokens").value_or(0) / seconds / group_->size());
  record.set("perf/cpu_memory_used_gb", static_cast<double>(resident_bytes()) / 1e9);
  record.set("perf/max_memory_allocated_gb", static_cast<double>(peak_resident_bytes()) / 1e9);
  return record;
}

void Trainer::save(int64_t number) {
  if (group_->rank() == 0) {
    const std::string root = folder_ + "/checkpoints";
    fs::create_directories(root);
    train::save_checkpoint(root, number, *optimizer_,
                           {{"step", number},
                            {"sampler", sampler_state_},
                            {"best_val", std::isfinite(best_val_) ? best_val_ : -1e300},
                            {"best_step", best_step_},
                            {"numerics_id", ops::numerics_id(model_->dtype())},
                            {"config_hash", hooks_.config_hash}});
    train::prune_checkpoints(root, config_.trainer.keep, {best_step_});
  }
  saved_step_ = number;
  group_->barrier();
}

// Throws if the user asked any rank to stop; the state after `finished_step` is saved first.
// Nothing of a step that has begun was applied yet.
void Trainer::stop_if_interrupted(int64_t finished_step) {
  double requests = interrupted() ? 1 : 0;
  group_->all_reduce_sum(std::span<double>(&requests, 1));
  if (requests == 0) return;
  if (finished_step > saved_step_) save(finished_step);
  throw Error(
      ErrorKind::kInterrupted,
      saved_step_ > 0
          ? fmt::format("interrupted; step {} was saved, the same command goes on from there",
                        saved_step_)
          : std::string("interrupted before the first step was finished"));
}

void Trainer::warm_up() {
  if (config_.sft.steps == 0 || first_step_ > 1) return;
  run_sft(config_, *model_, *optimizer_, *group_, *tokenizer_, *files_,
          [this] { stop_if_interrupted(0); });
  optimizer_->reset(adam_config(config_.optim));
}

void Trainer::run() {
  load();
  resume();
  if (replay_) replay_->check(first_step_, num_steps_);
  if (config_.trainer.trace) trace::start();
  warm_up();
  if (first_step_ == 1 && config_.trainer.val_before_train && !val_.prompts.empty()) {
    StepRecord record(0);
    validate(record);
    files_->add(record);
  }
  sampler_state_ = sampler_->state();
  for (int64_t number = first_step_; number <= num_steps_; ++number) {
    stop_if_interrupted(number - 1);
    StepRecord record = step(number);
    sampler_state_ = sampler_->state();
    files_->add(record);
    const bool due = config_.trainer.save_every > 0 && number % config_.trainer.save_every == 0;
    if (due || number == num_steps_ || (config_.trainer.save_best && best_step_ == number))
      save(number);
  }
  if (config_.trainer.trace && group_->rank() == 0) trace::write(folder_ + "/trace.json");
  files_->finish();
}

}  // namespace

std::string run_folder(const TrainConfig& config) {
  return config.trainer.run_dir + "/" + config.trainer.name;
}

std::string train(const TrainConfig& config, std::shared_ptr<parallel::Group> group,
                  const TrainerHooks& hooks) {
  Trainer(config, std::move(group), hooks).run();
  return run_folder(config);
}

}  // namespace keel::rl
