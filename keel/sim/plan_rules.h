// Rules that a set-up breaks or wastes time by, each with its reason: what `keel check plan` says.
#pragma once

#include <string>
#include <vector>

#include "keel/sim/calibration.h"
#include "keel/sim/catalog.h"
#include "keel/sim/memory.h"
#include "keel/sim/run.h"

namespace keel::sim {

struct PlanFinding {
  bool error = true;    // false: it works, but wastes time or memory
  std::string rule;     // "world_size", "train_memory", "kv_survivors", "batch_identity", ...
  std::string field;    // "layout.train.tp"
  std::string message;  // "[run.yaml:4 a layout.train.tp] expected X, got Y; try Z"
};

// In the order of the rules; empty if nothing is wrong. Throws Error(kInvalid) if the run names
// unknown hardware or an unknown model.
std::vector<PlanFinding> check_plan(const SimRun& run, const Catalog& catalog,
                                    const Calibration& calibration);

// Longest sequence of the workload, prompt included; 0 if no limit is stated.
int64_t longest_sequence(const Workload& workload);

// Memory of the rollout engine as the run states it, with its defaults (fraction 0.9, 8192 tokens).
// Coefficient: engine_context_bytes (graphs, communication buffers, allocator), of run.engine.name.
RolloutMemory run_rollout_memory(const SimRun& run, const Catalog& catalog,
                                 const Calibration& calibration);
double engine_context_bytes(const SimRun& run, const Catalog& catalog,
                            const Calibration& calibration);

// The most slots of a data-parallel rank for which survivors(t) * (prompt + t) stays within
// kv_tokens for all t, lengths drawn from the model; at most the rank's own samples, at least 1.
int64_t slots_that_fit(const SimRun& run, const LengthModel& lengths, int64_t kv_tokens);

}  // namespace keel::sim
