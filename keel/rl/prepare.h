// From scored answers to what an update needs: old and reference log-probs, advantages.
#pragma once

#include <vector>

#include "keel/model/model.h"
#include "keel/observe/step_record.h"
#include "keel/parallel/group.h"
#include "keel/rl/experience.h"
#include "keel/rl/train_config.h"

namespace keel::rl {

// Old log-probs are the recorded ones, or computed again if `recompute`. reference: null, or the
// model whose log-probs the KL terms need; the KL in the reward is subtracted here.
void fill_log_probs(const TrainConfig& config, model::Model& model, model::Model* reference,
                    bool recompute, std::vector<Experience>& batch, StepRecord& record);

// Groups may lie on several ranks; all ranks must call.
void fill_advantages(const AlgorithmSection& config, parallel::Group& group,
                     std::vector<Experience>& batch);

}  // namespace keel::rl
