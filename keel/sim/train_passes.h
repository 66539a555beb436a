// What a run's entry says about its training, as the cost model needs it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "keel/sim/catalog.h"
#include "keel/sim/run.h"
#include "keel/sim/train_cost.h"

namespace keel::sim {

PassSettings pass_settings(const SimRun& run);
bool optimizer_on_host(const SimRun& run);
std::string train_stack(const SimRun& run);  // owner of its coefficients

// Used where a mean response length is not published.
double assumed_response_mean(const SimRun& run);

// Micro-batches of the data-parallel group that decides, update after update.
struct TrainBatch {
  std::vector<MicroBatchLoad> micro_batches;
  int64_t updates = 1;
  double tokens = 0;  // of all groups
};
TrainBatch train_batch(const SimRun& run, const Catalog& catalog, uint64_t seed);

struct TrainStep {
  PassTime update;   // all updates with their optimizer steps
  PassTime forward;  // one pass over all sequences (reference or log-probs)
  double tokens = 0;
};
TrainStep train_step(const SimRun& run, const Catalog& catalog, const Coefficients& coefficients,
                     uint64_t seed);

}  // namespace keel::sim
