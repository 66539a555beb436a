// What one sampled answer is worth to training, from generation to the update.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "keel/rl/policy_pass.h"
#include "keel/rl/scorer.h"
#include "keel/rollout/sample.h"

namespace keel::rl {

struct Experience {
  int64_t row = 0;    // of the data set
  int64_t group = 0;  // answers of one prompt in one step
  rollout::Sample sample;
  std::string text;   // the answer, decoded
  Score score;        // of the task
  double reward = 0;  // trained on: score, penalties, KL
  double advantage = 0;
  std::vector<float> old_log_prob;  // per answer token
  std::vector<float> ref_log_prob;  // empty without a reference model

  int64_t num_answer_tokens() const { return std::ssize(sample.log_probs); }
  PassItem pass_item() const {
    return {std::span(sample.ids).first(static_cast<size_t>(sample.num_prompt)),
            sample.answer(),
            group,
            sample.params.temperature,
            sample.kept_ids,
            sample.kept_offsets};
  }
};

std::vector<PassItem> pass_items(const std::vector<Experience>& batch);

}  // namespace keel::rl
