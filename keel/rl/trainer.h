// The loop of reinforcement learning on one model: prompts, answers, rewards, advantages, updates,
// and around it validation, records, checkpoints and resuming.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "keel/parallel/group.h"
#include "keel/rl/train_config.h"

namespace keel::rl {

struct TrainerHooks {
  std::function<bool()> interrupted;  // polled between engine steps and stages; null = never
  std::string config_yaml;            // the resolved configuration, written to the run folder
  std::string config_hash;
};

// Where a run's files lie: <trainer.run_dir>/<trainer.name>.
std::string run_folder(const TrainConfig& config);

// Trains to the end (or from a checkpoint on, see trainer.resume) and returns the run folder.
// Throws Error: wrong data, model or configuration (kInvalid, before anything is computed), full
// disk (kResource), lost rank (kPeer), interrupted (kInterrupted; the state of the last finished
// step was saved).
std::string train(const TrainConfig& config, std::shared_ptr<parallel::Group> group,
                  const TrainerHooks& hooks);

}  // namespace keel::rl
