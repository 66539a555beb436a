// Sampling and scoring without training: `keel rollout` and `keel eval`.
#pragma once

#include <string>

#include "keel/base/json.h"
#include "keel/rl/train_config.h"
#include "keel/rl/trainer.h"

namespace keel::rl {

// Samples rollout.n answers for each row of data.train_files, scores them where a rule is known,
// and appends them to `out` as JSON lines (atomic: the file appears when complete). Returns counts
// and speed.
OrderedJson run_rollout(const TrainConfig& config, const TrainerHooks& hooks,
                        const std::string& out);

// Validates on data.val_files with trainer.val_n answers a prompt; returns the metrics. out may be
// "".
OrderedJson run_eval(const TrainConfig& config, const TrainerHooks& hooks, const std::string& out);

}  // namespace keel::rl
