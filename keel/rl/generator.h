// Samples answers with the engine and turns them into text and experiences.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "keel/model/model.h"
#include "keel/rl/experience.h"
#include "keel/rl/prompts.h"
#include "keel/rollout/engine.h"

namespace keel::rl {

struct GenerationPlan {
  std::vector<int64_t> rows;       // of the prompt set
  int64_t n = 1;                   // answers a row
  rollout::SamplingParams params;  // seed is set per answer
  uint64_t seed = 0;  // of this generation; answers derive theirs from it and their place
  int64_t first_place =
      0;  // place of rows[0] in the whole batch (data parallel ranks start elsewhere)
};

class Generator {
 public:
  // The model and the tokenizer outlive this. longest: prompt + answer tokens at most.
  Generator(model::Model& model, std::shared_ptr<const Tokenizer> tokenizer,
            const RolloutSection& config, int64_t longest);

  // progress(finished answers, all, tokens so far) returning false stops; the unfinished answers
  // are aborted.
  std::vector<Experience> generate(const PromptSet& set, const GenerationPlan& plan,
                                   const rollout::Engine::Progress& progress = {});

  rollout::EngineStats stats() const { return engine_->stats(); }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<rollout::Engine> engine_;
  int64_t next_id_ = 0;
};

// Sampling parameters of training, from the configuration.
rollout::SamplingParams sampling_params(const RolloutSection& config);

}  // namespace keel::rl
