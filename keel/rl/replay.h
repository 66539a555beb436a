// The recorded answers of a former run in place of generated and scored ones: with the same model
// and configuration a step then does, bit for bit, what the recorded one did.
#pragma once

#include <string>
#include <vector>

#include "keel/rl/experience.h"
#include "keel/rl/prompts.h"
#include "keel/rl/train_config.h"

namespace keel::rl {

struct ReplayedStep {
  std::vector<Experience> answers;  // of all ranks; whole groups; rewards are not filled
  int64_t gen_batches = 1;          // batches of prompts that were drawn for the step
  std::string numerics_id;          // of the log-probs; "" if there are no answers
};

class Replay {
 public:
  // config.trainer.replay: a folder with samples/step_N.jsonl of a run. config and set outlive
  // this.
  Replay(const TrainConfig& config, const PromptSet& set, int64_t vocab);

  // Before anything is computed: throws Error(kInvalid) for a step of [first, last] without a file,
  // and what read(first) throws.
  void check(int64_t first, int64_t last) const;

  // Throws Error(kInvalid), naming file and line, unless the file holds all answers of the step and
  // they belong to these prompts, this vocabulary and this configuration.
  ReplayedStep read(int64_t step) const;

 private:
  std::string path(int64_t step) const;
  Experience read_row(const Json& row, const std::string& where) const;
  void check_groups(const ReplayedStep& step, const std::string& path) const;

  const TrainConfig& config_;
  const PromptSet& set_;
  int64_t vocab_;
};

// The part of a step's answers that `rank` of `ranks` trains on: whole groups, in order.
std::vector<Experience> share_of(std::vector<Experience> answers, int64_t n, int rank, int ranks);

}  // namespace keel::rl
