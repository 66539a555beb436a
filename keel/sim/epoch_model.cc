// PPO with DeepSpeed-Chat's hybrid engine: every iteration generates fixed-length answers, scores
// them and trains actor and critic, all in chunks as large as memory allows.
#include <algorithm>
#include <cmath>

#include "keel/base/error.h"
#include "keel/sim/numbers.h"
#include "keel/sim/predict.h"

namespace keel::sim {
namespace {

// Where the model's states lie. ZeRO-3 shards 18 bytes a parameter (16-bit weights and gradients,
// f32 optimizer, 16-bit reference); what does not fit goes to the host step by step.
struct Placement {
  double static_bytes = 0;
  int level = 0;  // 1: optimizer on the host, 2: gradients and reference too
  double generation_tp = 1;
};

Placement place(double params, double critic, double devices, double memory) {
  constexpr double kBytes[] = {18, 6, 2};
  Placement p;
  for (p.level = 0; p.level < 3; ++p.level) {
    p.static_bytes = (kBytes[p.level] * params + 18 * critic) / devices;
    if (p.static_bytes < 0.75 * memory || p.level == 2) break;
  }
  const double most = std::min(8.0, devices);
  while (p.generation_tp < most && 2 * params / p.generation_tp + p.static_bytes > 0.8 * memory) {
    p.generation_tp *= 2;
  }
  return p;
}

}  // namespace

std::vector<Prediction> predict_epoch(const SimRun& run, const Catalog& catalog,
                                      const Calibration& calibration,
                                      const PredictOptions& options) {
  const HardwareSpec& hw = catalog.find_hardware(run.hardware);
  const TwinModel& m = catalog.find_model(run.model);
  const Coefficients c(calibration, hw.id, hw.vendor, run.train.engine, "", options.used);
  const Workload& w = run.workload;
  const double critic =
      w.critic.empty() ? 0 : to_double(total_params(catalog.find_model(w.critic)));
  const double prompt = w.prompt_len.mean.value_or(to_double(w.prompt_len.max));
  const double answer = w.response_len.mean.value_or(to_double(w.response_len.max));
  const double len = prompt + answer;
  const double params = to_double(total_params(m)), layers = to_double(m.layers);
  const double devices = to_double(std::max<int64_t>(1, run.devices));
  const double memory = 0.9 * hw.memory_bytes;
  const Placement at = place(params, critic, devices, memory);
  const double global = to_double(w.max_global_batch > 0 ? w.max_global_batch : 1024);
  const double batch = std::max(1.0, std::floor(global / devices));

  // Chunks: checkpointed layer inputs, logits and one layer's activations; KV beside the weights.
  const double hidden = to_double(m.hidden);
  const double train_bytes = len * (layers * hidden * 2 + to_double(m.vocab) * 8 + 34 * hidden);
  const double kv_bytes = len * kv_bytes_per_token(m, 1, 2);
  const double train_chunk = std::clamp((memory - at.static_bytes) / train_bytes, 1.0, batch);
  const double free_bytes = memory - at.static_bytes - 2 * params / at.generation_tp;
  const double chunk = std::clamp(free_bytes / kv_bytes, 1.0, batch);
  const double train_chunks = std::ceil(batch / train_chunk), chunks = std::ceil(batch / chunk);

  const double peak = hw.peak("fp16");
  const double layer_s = c("decode_layer_s");
  const double generation =
      chunks * answer *
      (layers * layer_s + 2 * params / at.generation_tp / (hw.memory_bytes_per_s * 0.65));
  // Actor 2 + 2 (checkpointing) + 4, reference 2, prefill and decode 2; critic and reward 10.
  const double compute =
      batch * len * (12 * params + 10 * critic) / (peak * c("train_gemm_efficiency")) +
      batch * 5 * attention_flops(m, len) / (peak * c("train_attention_efficiency"));
  const double elementwise =
      batch * len * 9 * layers * hidden * c("layer_bytes") / hw.memory_bytes_per_s;
  double gather = 0;
  if (devices > 1) {
    const auto& level = hw.level_for(run.devices);
    const double lanes = run.devices > 8 ? 4 : 1;  // a node's links share a gather between nodes
    gather = 2 * params * (devices - 1) / devices /
             (lanes * level.bytes_per_s * c("train_link_efficiency"));
  }
  const double zero = c("dp_exposed") * (4 * train_chunks + chunks) * gather;
  const double host = train_chunks * 3 * layers * layer_s;
  double offload = 0;
  if (at.level >= 1) {
    const double link = hw.host_link_bytes_per_s * c("host_link_efficiency");
    offload = params / std::max(1.0, devices / 8) / c("host_adam_params_per_s") +
              train_chunks * 2 * params / devices / link;
    if (at.level == 2) {
      offload += train_chunks * 6 * params / devices / link + chunks * 2 * params / link;
    }
  }
  const double iterations = to_double(w.queries) / (batch * devices);
  Prediction p{"epoch_s", 0, 0, {}};
  p.parts = {{"generation", generation},
             {"compute", compute},
             {"elementwise", elementwise},
             {"zero", zero},
             {"host", host},
             {"offload", offload}};
  for (auto& [name, seconds] : p.parts) {
    seconds *= iterations;
    p.value += seconds;
  }
  return {p};
}

}  // namespace keel::sim
