#include "keel/rl/evaluate.h"

#include <chrono>

#include "keel/base/error.h"
#include "keel/base/rng.h"
#include "keel/base/thread_pool.h"
#include "keel/io/atomic_file.h"
#include "keel/model/load.h"
#include "keel/observe/console.h"
#include "keel/ops/isa.h"
#include "keel/rl/generator.h"
#include "keel/rl/run_files.h"
#include "keel/rl/validation.h"
#include "keel/spec/model_name.h"

namespace keel::rl {
namespace {

// Model, prompts and engine, loaded once.
struct Session {
  Session(const TrainConfig& config, const std::vector<std::string>& files) {
    if (config.trainer.threads > 0) set_num_threads(static_cast<int>(config.trainer.threads));
    if (!config.numerics.isa.empty()) ops::pin_isa(config.numerics.isa);
    const std::string path = resolve_model(config.model.path);
    tokenizer = Tokenizer::load(path);
    prompts = load_prompts(files, config.data, config.data_seed(), *tokenizer);
    const ModelDir dir(path);
    model = model::load_model(
        dir, config.model.dtype == ComputeType::kBf16 ? ops::DType::kBF16 : ops::DType::kF32);
    generator =
        std::make_unique<Generator>(*model, tokenizer, config.rollout,
                                    config.data.max_prompt_length + config.rollout.max_new_tokens);
  }

  std::vector<Experience> generate(GenerationPlan plan, const TrainerHooks& hooks) {
    for (int64_t i = 0; i < std::ssize(prompts.prompts); ++i) plan.rows.push_back(i);
    Console console({});
    console.phase(0, "generate", std::ssize(plan.rows) * plan.n, "answers");
    const auto start = std::chrono::steady_clock::now();
    auto answers = generator->generate(prompts, plan, [&](int64_t finished, int64_t, int64_t) {
      console.progress(finished);
      return !(hooks.interrupted && hooks.interrupted());
    });
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (hooks.interrupted && hooks.interrupted())
      throw Error(ErrorKind::kInterrupted, "interrupted; nothing was written");
    return answers;
  }

  std::shared_ptr<const Tokenizer> tokenizer;
  PromptSet prompts;
  std::unique_ptr<model::Model> model;
  std::unique_ptr<Generator> generator;
  double seconds = 0;
};

void score_all(Scorer& scorer, const PromptSet& set, std::vector<Experience>& answers) {
  std::vector<Answer> texts;
  for (const Experience& e : answers)
    texts.push_back({&set.data.rows[static_cast<size_t>(e.row)], e.text, e.sample.answer()});
  auto scores = scorer.score(texts);
  for (size_t i = 0; i < answers.size(); ++i) {
    answers[i].reward = scores[i].value;
    answers[i].score = std::move(scores[i]);
  }
}

void write_answers(const std::string& out, const std::vector<Experience>& answers,
                   const PromptSet& set) {
  if (out.empty()) return;
  AtomicWriter writer(out);
  for (const Experience& e : answers) {
    writer.write(sample_row(0, e, set).dump(-1, ' ', false, OrderedJson::error_handler_t::replace) +
                 "\n");
  }
  writer.commit();
}

}  // namespace

OrderedJson run_rollout(const TrainConfig& config, const TrainerHooks& hooks,
                        const std::string& out) {
  Session session(config, config.data.train_files);
  const bool scores = !config.reward.rule.empty() || !config.reward.path.empty();
  std::unique_ptr<Scorer> scorer;
  if (scores) scorer = std::make_unique<Scorer>(config.reward, "");
  GenerationPlan plan;
  plan.n = config.rollout.n;
  plan.params = sampling_params(config.rollout);
  plan.seed = config.rollout_seed();
  auto answers = session.generate(plan, hooks);
  if (scorer) score_all(*scorer, session.prompts, answers);
  write_answers(out, answers, session.prompts);
  int64_t tokens = 0;
  double score = 0;
  for (const Experience& e : answers) {
    tokens += e.num_answer_tokens();
    score += e.score.value;
  }
  OrderedJson summary = {{"answers", answers.size()},
                         {"tokens", tokens},
                         {"seconds", session.seconds},
                         {"tokens_per_s", static_cast<double>(tokens) / session.seconds}};
  if (scorer)
    summary["score_mean"] = score / static_cast<double>(std::max<size_t>(1, answers.size()));
  return summary;
}

OrderedJson run_eval(const TrainConfig& config, const TrainerHooks& hooks, const std::string& out) {
  KEEL_REQUIRE(!config.data.val_files.empty(),
               "[data.val_files] expected files to evaluate on, got none");
  Session session(config, config.data.val_files);
  Scorer scorer(config.reward, "");
  scorer.check(session.prompts.data);
  GenerationPlan plan;
  plan.n = config.trainer.val_n;
  plan.params = sampling_params(config.rollout);
  plan.params.temperature = static_cast<float>(config.trainer.val_temperature);
  plan.seed = config.rollout_seed();
  auto answers = session.generate(plan, hooks);
  score_all(scorer, session.prompts, answers);
  write_answers(out, answers, session.prompts);
  StepRecord record(0);
  const auto self = parallel::Group::self();
  add_validation_metrics(*self, answers, session.prompts.data.rows, plan.n, record);
  OrderedJson metrics;
  for (const auto& [name, value] : record.metrics()) metrics[name] = value;
  return metrics;
}

}  // namespace keel::rl
