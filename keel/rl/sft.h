// Supervised warm-up: next-token loss on completions, before reinforcement learning starts.
#pragma once

#include <functional>

#include "keel/model/model.h"
#include "keel/parallel/group.h"
#include "keel/rl/run_files.h"
#include "keel/rl/train_config.h"
#include "keel/tokenizer/tokenizer.h"
#include "keel/train/optimizer.h"

namespace keel::rl {

// sft.steps updates on sft.train_files, mean loss over the completion tokens of a batch. The
// optimizer is reset to sft.lr first; the caller resets it again afterwards. before_update may
// throw to stop.
void run_sft(const TrainConfig& config, model::Model& model, train::AdamW& optimizer,
             parallel::Group& group, const Tokenizer& tokenizer, RunFiles& files,
             const std::function<void()>& before_update);

}  // namespace keel::rl
