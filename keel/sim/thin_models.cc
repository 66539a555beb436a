// First, coarse models of the kinds that have no file of their own yet.
#include <algorithm>
#include <cmath>

#include "keel/sim/kernels.h"
#include "keel/sim/memory.h"
#include "keel/sim/numbers.h"
#include "keel/sim/predict.h"
#include "keel/sim/train_passes.h"

namespace keel::sim {
namespace {

double decode_s(const TwinModel& m, const HardwareSpec& hw, const Coefficients& c, double tp,
                double ep, double batch, double context, const std::string& dtype) {
  const double bytes = dtype_bytes(dtype.empty() ? "bf16" : dtype);
  const auto p = layer_params(m);
  const double expert = m.is_moe() ? to_double(m.moe_layers() * m.experts * p.expert) : 0;
  const double touched =
      m.is_moe() ? 1 - std::pow(1 - to_double(m.topk) / to_double(m.experts), batch) : 0;
  const double dense =
      to_double(total_params(m)) - expert - to_double(m.tied_embeddings ? 0 : embedding_params(m));
  const double read = (dense / tp + expert * touched / ep) * bytes +
                      batch * context * kv_bytes_per_token(m, static_cast<int64_t>(tp), 2);
  return to_double(m.layers) * (c("layer_decode_s") + batch * c("sequence_layer_s")) +
         read / (hw.memory_bytes_per_s * c("memory_efficiency"));
}
}  // namespace

std::vector<Prediction> predict_serving(const SimRun& run, const Catalog& catalog,
                                        const Calibration& cal, const PredictOptions& o) {
  const HardwareSpec& hw = catalog.find_hardware(run.hardware);
  const TwinModel& m = catalog.find_model(run.model);
  const Coefficients c(cal, hw.id, hw.vendor, run.engine.name, run.engine.version, o.used);
  const auto l = rollout_layout(run);
  const double batch = 256, in = to_double(run.workload.input_len),
               n = to_double(run.workload.output_len);
  const double t = decode_s(m, hw, c, l.tp, l.tp, batch, in + n / 2, run.rollout_dtype);
  const double prefill = (linear_flops(m, in) + attention_flops(m, in)) /
                         (l.tp * hw.peak(run.rollout_dtype) * c("gemm_efficiency"));
  std::vector<Prediction> out;
  for (const auto& target : run.targets) {
    out.push_back({target,
                   batch * n / (n * t + batch * prefill) *
                       (target == "decode_tokens_per_s_per_node" ? 8 / l.tp : 1),
                   0,
                   {}});
  }
  return out;
}

}  // namespace keel::sim
