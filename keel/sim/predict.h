// A prediction of every target of a run, with what it is made of.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "keel/sim/calibration.h"
#include "keel/sim/catalog.h"
#include "keel/sim/run.h"

namespace keel::sim {

struct Prediction {
  std::string target;  // "rollout_s"
  double value = 0;    // in the unit that the target's name ends in
  double spread = 0;   // largest minus smallest over the seeds, same unit; 0 = nothing is drawn
  // Seconds (or bytes) by cause; where the target is a time they sum to it.
  std::vector<std::pair<std::string, double>> parts;
};

struct PredictOptions {
  int64_t num_seeds = 3;  // draws of lengths; their mean is the prediction
  uint64_t seed = 1;
  std::set<std::string>* used = nullptr;  // keys of the coefficients that were read
};

// All targets of the run, in the run's order; never reads run.measured. Targets it cannot predict
// are left out. Throws Error(kInvalid) if the run names unknown hardware or models.
std::vector<Prediction> predict(const SimRun& run, const Catalog& catalog,
                                const Calibration& calibration, const PredictOptions& options = {});

// The parts that `predict` hands to one file each (rollout_model.cc, train_model.cc, ...): each
// predicts the targets of its kinds. The software stack of a part is run.engine.name for rollout
// and serving, run.train.engine for training, with run.engine.version where given.
std::vector<Prediction> predict_kernel(const SimRun&, const Catalog&, const Calibration&,
                                       const PredictOptions&);
std::vector<Prediction> predict_decode_bs1(const SimRun&, const Catalog&, const Calibration&,
                                           const PredictOptions&);
std::vector<Prediction> predict_tpot(const SimRun&, const Catalog&, const Calibration&,
                                     const PredictOptions&);
std::vector<Prediction> predict_serving(const SimRun&, const Catalog&, const Calibration&,
                                        const PredictOptions&);
std::vector<Prediction> predict_rollout(const SimRun&, const Catalog&, const Calibration&,
                                        const PredictOptions&);
std::vector<Prediction> predict_train(const SimRun&, const Catalog&, const Calibration&,
                                      const PredictOptions&);  // train_step
std::vector<Prediction> predict_step(const SimRun&, const Catalog&, const Calibration&,
                                     const PredictOptions&);  // rl_step, sync
std::vector<Prediction> predict_epoch(const SimRun&, const Catalog&, const Calibration&,
                                      const PredictOptions&);  // rl_epoch

// Targets that are bytes (peak_memory_gib, peak_memory_gb); predict_train appends them.
std::vector<Prediction> predict_train_memory(const SimRun&, const Catalog&, const Calibration&,
                                             const PredictOptions&);

}  // namespace keel::sim
