// A whole step of RL: rollout, log-prob passes, update and the hand-over of weights, one after the
// other on the same devices or side by side on two sets.
#include <algorithm>
#include <cmath>

#include "keel/base/error.h"
#include "keel/sim/numbers.h"
#include "keel/sim/predict.h"
#include "keel/sim/train_passes.h"

namespace keel::sim {
namespace {

// Seconds to bring bf16 weights from the training layout to the rollout layout.
double reshard_s(const SimRun& run, const TwinModel& model, const HardwareSpec& hw,
                 const Coefficients& c) {
  // A rank sends what it holds once and receives its rollout shard; the wider of the two decides.
  const auto train = rank_params(model, train_layout(run));
  const auto rollout = rank_params(model, rollout_layout(run));
  const double bytes =
      2 * std::max(train.total() / train_layout(run).pp, rollout.total() / rollout_layout(run).pp);
  return c("reshard_fixed_s") + bytes / (hw.levels.back().bytes_per_s * c("reshard_efficiency"));
}

struct Stages {
  double rollout = 0, rollout_batch = 0, spread = 0;
  double ref = 0, old_logprob = 0, update = 0, reshard = 0, rest = 0;
  bool concurrent = false;
  double train_side() const { return ref + old_logprob + update; }
  double step() const {
    if (!concurrent) return rollout + train_side() + reshard + rest;
    return std::max(rollout, train_side()) + reshard + rest;
  }
};

Stages stages_of(const SimRun& run, const Catalog& catalog, const Calibration& calibration,
                 const PredictOptions& options, TrainStep& train) {
  const HardwareSpec& hw = catalog.find_hardware(run.hardware);
  const TwinModel& model = catalog.find_model(run.model);
  const Coefficients c(calibration, hw.id, hw.vendor, train_stack(run), "rl", options.used);
  Stages s;
  for (const auto& p : predict_rollout(run, catalog, calibration, options)) {
    if (p.target == "rollout_s") {
      s.rollout = p.value;
      s.spread = p.spread;
    }
    if (p.target == "rollout_batch_s") s.rollout_batch = p.value;
  }
  train = train_step(run, catalog, c, options.seed);
  s.update = train.update.total;
  if (run.workload.ref_pass) s.ref = train.forward.total;
  if (run.workload.old_logprob_pass) s.old_logprob = train.forward.total;
  s.reshard = reshard_s(run, model, hw, c);
  s.rest = c("step_rest_s");
  s.concurrent = run.placement.rfind("split", 0) == 0;
  return s;
}

}  // namespace

std::vector<Prediction> predict_step(const SimRun& run, const Catalog& catalog,
                                     const Calibration& calibration,
                                     const PredictOptions& options) {
  const HardwareSpec& hw = catalog.find_hardware(run.hardware);
  const TwinModel& model = catalog.find_model(run.model);
  std::vector<Prediction> out;
  if (run.kind == RunKind::kSync) {
    const Coefficients c(calibration, hw.id, hw.vendor, train_stack(run), "rl", options.used);
    for (const auto& target : run.targets) {
      if (target != "sync_s") continue;
      const double bytes = 2 * to_double(total_params(model));
      const double rate =
          run.engine.checkpoint_engine ? c("sync_engine_bytes_per_s") : c("sync_bytes_per_s");
      const double s = bytes / rate;
      out.push_back({target, s, 0, {{"transfer", s}}});
    }
    return out;
  }
  TrainStep train;
  const Stages s = stages_of(run, catalog, calibration, options, train);
  for (const auto& target : run.targets) {
    Prediction p{target, 0, 0, {}};
    if (target == "rollout_s") {
      p.value = s.rollout;
      p.spread = s.spread;
    } else if (target == "rollout_batch_s") {
      p.value = s.rollout_batch > 0
                    ? s.rollout_batch
                    : s.rollout / to_double(std::max<int64_t>(1, run.workload.generation_batches));
    } else if (target == "ref_s") {
      p.value = train.forward.total;
      p.parts = train.forward.parts;
    } else if (target == "old_logprob_s") {
      p.value = train.forward.total;
      p.parts = train.forward.parts;
    } else if (target == "update_s") {
      p.value = s.update;
      p.parts = train.update.parts;
    } else if (target == "reshard_s") {
      p.value = s.reshard;
    } else if (target == "step_s" || target == "tokens_per_s_per_rank") {
      p.value = s.step();
      p.spread = s.spread;
      p.parts = {{"rollout", s.rollout}, {"ref", s.ref},         {"old_logprob", s.old_logprob},
                 {"update", s.update},   {"reshard", s.reshard}, {"rest", s.rest}};
      if (s.concurrent)
        p.parts.emplace_back("hidden",
                             s.step() - (s.rollout + s.train_side() + s.reshard + s.rest));
      if (target != "step_s") p.value = train.tokens / s.step() / to_double(run.devices);
    } else {
      continue;
    }
    out.push_back(std::move(p));
  }
  return out;
}

}  // namespace keel::sim
