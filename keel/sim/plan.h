// Search of layouts: enumerate what is legal, drop what does not fit, score the rest by the twin,
// return the best few as data. Pure: same request, same plans; ties go to the smaller degrees.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "keel/base/json.h"
#include "keel/sim/plan_rules.h"
#include "keel/sim/predict.h"

namespace keel::sim {

struct PlanRequest {
  // Model, hardware, devices, workload, precision and engine; the layout, if stated, is the user's
  // own and only compared with. placement "split" keeps the stated numbers of devices apart.
  SimRun run;
  int64_t top = 5;
  int64_t num_seeds = 2;  // draws of lengths for the plans that are returned
};

struct PlanStage {
  std::string name;  // "rollout_s", "ref_s", "old_logprob_s", "update_s", "reshard_s", "step_s"
  double seconds = 0;
  double spread = 0;  // over the seeds
  std::string limit;  // the largest cause and its share: "attention 41 %"
};

struct PlanChoice {
  SimRun run;  // with the layout filled in
  std::vector<PlanStage> stages;
  double step_s = 0;
  MemoryUse train_memory;    // of the fullest stage
  MemoryUse rollout_memory;  // with the cache
  int64_t kv_tokens = 0;
  std::vector<std::string> changes;  // against the user's own: "train.tp 4 -> 8"
};

struct PlanResult {
  int64_t num_layouts = 0;   // legal, training
  int64_t num_fitting = 0;   // of them, with some recomputation or offload
  int64_t num_rollouts = 0;  // rollout set-ups that fit
  std::vector<PlanChoice> best;
  std::optional<PlanChoice> own;
  std::vector<PlanFinding> own_findings;
};

// Throws Error(kInvalid) if the workload states no prompts or lengths, or if nothing fits; the
// message says what comes nearest.
PlanResult plan_layouts(const PlanRequest& request, const Catalog& catalog,
                        const Calibration& calibration);

// A text table, and the settings of `choice` that `keel train` reads, as its configuration file.
std::string plan_text(const PlanResult& result, const HardwareSpec& hardware);
std::string plan_config(const PlanChoice& choice);
OrderedJson plan_json(const PlanResult& result);

}  // namespace keel::sim
