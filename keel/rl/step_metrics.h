// The step record of a training step: what was sampled, what it was worth, what the updates did.
#pragma once

#include <span>
#include <vector>

#include "keel/observe/step_record.h"
#include "keel/parallel/group.h"
#include "keel/rl/experience.h"
#include "keel/rl/update.h"

namespace keel::rl {

// Mean; 0 for none.
double mean_of(const std::vector<double>& values);

// What has to be the same on all ranks is gathered in rank order first, so one rank or many give
// the same record.
void add_sample_metrics(parallel::Group& group, std::span<const Experience> batch,
                        int64_t max_new_tokens, int64_t max_prompt_tokens, StepRecord& record);

// updates: of one step, in order. measured: the first one's forward pass saw the weights that
// sampled.
void add_update_metrics(std::span<const UpdateStats> updates, StepRecord& record);

}  // namespace keel::rl
