#include "keel/sim/predict.h"

#include "keel/base/error.h"

namespace keel::sim {

std::vector<Prediction> predict(const SimRun& run, const Catalog& catalog,
                                const Calibration& calibration, const PredictOptions& options) {
  switch (run.kind) {
    case RunKind::kKernel:
      return predict_kernel(run, catalog, calibration, options);
    case RunKind::kDecodeBs1:
      return predict_decode_bs1(run, catalog, calibration, options);
    case RunKind::kTpot:
      return predict_tpot(run, catalog, calibration, options);
    case RunKind::kServing:
      return predict_serving(run, catalog, calibration, options);
    case RunKind::kRollout:
      return predict_rollout(run, catalog, calibration, options);
    case RunKind::kTrainStep:
      return predict_train(run, catalog, calibration, options);
    case RunKind::kRlEpoch:
      return predict_epoch(run, catalog, calibration, options);
    case RunKind::kRlStep:
    case RunKind::kSync:
      return predict_step(run, catalog, calibration, options);
  }
  KEEL_CHECK(false, "kind {}", static_cast<int>(run.kind));
}

}  // namespace keel::sim
