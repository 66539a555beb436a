#include "keel/rl/generator.h"

#include "keel/base/rng.h"
#include "keel/ops/numerics.h"
#include "keel/rollout/model_runner.h"

namespace keel::rl {
namespace {

class TokenizerStream : public rollout::TextStream {
 public:
  explicit TokenizerStream(std::shared_ptr<const Tokenizer> tokenizer)
      : decoder_(std::move(tokenizer), true) {}
  std::string push(int32_t id) override { return decoder_.push(id); }

 private:
  IncrementalDecoder decoder_;
};

std::vector<int32_t> stop_ids(const model::Model& model, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (const int64_t id : model.spec().eos_ids) ids.push_back(static_cast<int32_t>(id));
  if (const auto eos = tokenizer.eos_id();
      eos && std::find(ids.begin(), ids.end(), *eos) == ids.end()) {
    ids.push_back(*eos);
  }
  return ids;
}

}  // namespace

std::vector<PassItem> pass_items(const std::vector<Experience>& batch) {
  std::vector<PassItem> items;
  for (const Experience& e : batch) items.push_back(e.pass_item());
  return items;
}

rollout::SamplingParams sampling_params(const RolloutSection& config) {
  rollout::SamplingParams p;
  p.temperature = static_cast<float>(config.temperature);
  p.top_k = static_cast<int32_t>(std::max<int64_t>(0, config.top_k));
  p.top_p = static_cast<float>(config.top_p);
  p.min_p = static_cast<float>(config.min_p);
  p.max_new_tokens = static_cast<int32_t>(config.max_new_tokens);
  p.stop_strings = config.stop;
  p.ignore_eos = config.ignore_eos;
  return p;
}

Generator::Generator(model::Model& model, std::shared_ptr<const Tokenizer> tokenizer,
                     const RolloutSection& config, int64_t longest)
    : tokenizer_(std::move(tokenizer)) {
  rollout::EngineConfig engine;
  engine.max_seqs = static_cast<int32_t>(config.max_num_seqs);
  engine.step_tokens = static_cast<int32_t>(config.max_batched_tokens);
  engine.prefix_cache = config.prefix_cache;
  rollout::KvConfig kv;
  kv.kv_blocks = static_cast<int32_t>(config.kv_blocks);
  auto runner = std::make_unique<rollout::ModelRunner>(model, kv, config.max_num_seqs * longest,
                                                       ops::numerics_id(model.dtype()));
  engine_ = std::make_unique<rollout::Engine>(
      engine, std::move(runner), stop_ids(model, *tokenizer_),
      [t = tokenizer_] { return std::make_unique<TokenizerStream>(t); });
}

std::vector<Experience> Generator::generate(const PromptSet& set, const GenerationPlan& plan,
                                            const rollout::Engine::Progress& progress) {
  std::vector<rollout::Request> requests;
  std::vector<Experience> out;
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const int64_t place = plan.first_place + static_cast<int64_t>(i);
    for (int64_t j = 0; j < plan.n; ++j) {
      rollout::Request r;
      r.id = next_id_++;
      r.group = place;
      r.prompt_ids = set.prompts[static_cast<size_t>(plan.rows[i])].ids;
      r.params = plan.params;
      r.params.seed =
          mix_key(mix_key(plan.seed, static_cast<uint64_t>(place)), static_cast<uint64_t>(j));
      requests.push_back(std::move(r));
      out.emplace_back();
      out.back().row = plan.rows[i];
      out.back().group = place;
    }
  }
  auto samples = engine_->generate(std::move(requests), progress);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i].sample = std::move(samples[i]);
    out[i].text = tokenizer_->decode(out[i].sample.answer(), true);
  }
  return out;
}

}  // namespace keel::rl
