// One run in detail: every prediction with its parts, what each optimization switch is worth, and a
// timeline of its stages.
#pragma once

#include <string>
#include <vector>

#include "keel/base/json.h"
#include "keel/sim/predict.h"

namespace keel::sim {

// A setting turned to its other value, everything else as it is.
struct SwitchGain {
  std::string name;     // "expert overlap"
  std::string setting;  // "off -> on"
  double before = 0;    // of the target that was compared, seconds
  double after = 0;
};

struct StepDetail {
  std::vector<Prediction> predictions;
  std::string switch_target;  // the longest stage or step that the run names; "" = none in seconds
  std::vector<SwitchGain> switches;  // only those that change something, largest gain first
};
StepDetail step_detail(const SimRun& run, const Catalog& catalog, const Calibration& calibration,
                       const PredictOptions& options = {});

OrderedJson detail_json(const SimRun& run, const StepDetail& detail);
std::string detail_text(const SimRun& run, const StepDetail& detail);
// Chrome trace (chrome://tracing): one row per target in seconds, its parts one after the other.
OrderedJson detail_trace(const StepDetail& detail);

}  // namespace keel::sim
