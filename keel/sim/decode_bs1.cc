// One sequence on one engine, and single kernels.
#include <algorithm>
#include <cmath>

#include "keel/base/error.h"
#include "keel/sim/kernels.h"
#include "keel/sim/numbers.h"
#include "keel/sim/predict.h"

namespace keel::sim {
namespace {

struct Bs1 {
  const TwinModel& m;
  const HardwareSpec& hardware;
  const Coefficients& c;
  int64_t tp;
  std::string dtype;  // of the layers' weights
};

// Seconds of one decode step by cause: every weight that the token uses is read once; a layer
// costs its kernels on top, because a batch of one never hides them.
std::vector<std::pair<std::string, double>> step_parts(const Bs1& b, double context) {
  const double tp = to_double(b.tp);
  const double rate = b.hardware.memory_bytes_per_s;
  const double body = to_double(active_params(b.m) - embedding_params(b.m)) / tp;
  const double head = to_double(embedding_params(b.m)) / tp;
  const double layers = to_double(b.m.layers);
  std::vector<std::pair<std::string, double>> parts;
  const double weights = rate * b.c("weight_read_share");
  parts.emplace_back("weights", body * dtype_bytes(b.dtype) / weights);
  parts.emplace_back("head", 2 * head / weights);  // stays in 16 bits
  parts.emplace_back("kv",
                     kv_bytes_per_token(b.m, b.tp, 2) * context / (rate * b.c("kv_read_share")));
  parts.emplace_back("kernels", layers * b.c("layer_s"));
  if (b.m.is_moe()) parts.emplace_back("experts", to_double(b.m.moe_layers()) * b.c("moe_layer_s"));
  if (b.tp > 1) parts.emplace_back("all_reduce", 2 * layers * b.c("all_reduce_small_s"));
  return parts;
}

double prefill_s(const Bs1& b, double tokens) {
  const double tp = to_double(b.tp);
  // 4-bit weights are unpacked and multiplied in 16 bits.
  const double peak = b.hardware.peak(dtype_bytes(b.dtype) < 1 ? "bf16" : b.dtype);
  double seconds = linear_flops(b.m, tokens) / tp / (peak * b.c("prefill_gemm_share")) +
                   attention_flops(b.m, tokens) / tp /
                       (b.hardware.peak("bf16") * b.c("prefill_attention_share"));
  if (b.tp > 1) {
    const double bytes = tokens * to_double(b.m.hidden) * 2;  // all-reduced twice a layer
    seconds += 2 * to_double(b.m.layers) * 2 * (tp - 1) / tp * bytes /
               (b.hardware.level_for(b.tp).bytes_per_s * b.c("link_share"));
  }
  return seconds;
}

}  // namespace

std::vector<Prediction> predict_decode_bs1(const SimRun& run, const Catalog& catalog,
                                           const Calibration& calibration,
                                           const PredictOptions& options) {
  const auto& hardware = catalog.find_hardware(run.hardware);
  const auto& model = catalog.find_model(run.model);
  const Coefficients c(calibration, hardware.id, hardware.vendor, run.engine.name,
                       run.engine.version, options.used);
  const Bs1 b = {model, hardware, c, rollout_layout(run).tp,
                 run.rollout_dtype.empty() ? "bf16" : run.rollout_dtype};
  const double in = to_double(run.workload.input_len), out = to_double(run.workload.output_len);
  KEEL_REQUIRE(out > 0, "[{}:{} {} workload.output_len] expected at least 1, got 0", run.file,
               run.line, run.id);
  std::vector<std::pair<std::string, double>> parts = {{"prefill", prefill_s(b, in)}};
  for (const auto& [name, seconds] : step_parts(b, in + out / 2)) {
    parts.emplace_back(name, seconds * out);
  }
  double total = 0;
  for (const auto& [name, seconds] : parts) total += seconds;
  std::vector<Prediction> predictions;
  for (const auto& target : run.targets) {
    if (target == "tokens_per_s") {  // the publication counts prompt and generated tokens
      predictions.push_back({target, (in + out) / total, 0, parts});
    } else if (target == "latency_s_derived") {
      predictions.push_back({target, total, 0, parts});
    }
  }
  return predictions;
}

std::vector<Prediction> predict_kernel(const SimRun& run, const Catalog& catalog,
                                       const Calibration& calibration,
                                       const PredictOptions& options) {
  const auto& w = run.workload;
  KEEL_REQUIRE(w.op == "matmul" && w.m > 0 && w.n > 0 && w.k > 0,
               "[{}:{} {} workload] expected op: matmul with m, n and k above 0, got {} {} {} {}",
               run.file, run.line, run.id, w.op.empty() ? "no op" : w.op, w.m, w.n, w.k);
  const auto& hardware = catalog.find_hardware(run.hardware);
  const Coefficients c(calibration, hardware.id, hardware.vendor, "", "", options.used);
  const std::string dtype = run.rollout_dtype.empty() ? "bf16" : run.rollout_dtype;
  const double bytes = dtype_bytes(dtype);
  const double m = to_double(w.m), n = to_double(w.n), k = to_double(w.k);
  const double compute =
      2 * m * n * k / (hardware.peak(dtype) * c.kernel("matmul", "gemm_efficiency"));
  const double memory = (n * k + m * (n + k)) * bytes /
                        (hardware.memory_bytes_per_s * c.kernel("matmul", "memory_efficiency"));
  // Least traffic from L2 of tiles that `cores` cores share out in two dimensions.
  const double cores = to_double(std::max<int64_t>(1, hardware.cores));
  const double tiles =
      2 * k * std::sqrt(m * n * cores) * bytes / c.kernel("matmul", "l2_bytes_per_s");
  const std::vector<std::pair<std::string, double>> parts = {
      {"fixed", 1e6 * c.kernel("matmul", "fixed_s")},
      {compute > memory ? "compute" : "memory", 1e6 * std::max(compute, memory)},
      {"tiles", 1e6 * tiles}};
  double total = 0;
  for (const auto& [name, us] : parts) total += us;
  std::vector<Prediction> out;
  for (const auto& target : run.targets) {
    if (target == "time_us") out.push_back({target, total, 0, parts});
  }
  return out;
}

}  // namespace keel::sim
