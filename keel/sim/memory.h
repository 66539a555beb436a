// Bytes on one device in each phase: what a layout needs before it runs. Exact where it is
// arithmetic; what an allocator and a framework add are coefficients.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "keel/balance/layout.h"
#include "keel/sim/calibration.h"
#include "keel/sim/model.h"
#include "keel/sim/run.h"

namespace keel::sim {

enum class Recompute {
  kNone,
  kCoreAttention,   // attention is recomputed; flash kernels keep nothing of it anyway
  kFull,            // a layer keeps its input only
  kMlp,             // feed-forward and expert inputs are recomputed
  kMoeZeroMemory0,  // grouped GEMM inputs and activation outputs are freed
  kMoeZeroMemory1,  // all between the layer input and the expert outputs is freed
  kOffload,         // as full, and layer inputs lie on the host
};
// "full", "4 layers" (partial full), "none or selective", "" ...; layers: how many of a stage, -1 =
// all. Unknown words are an Error(kInvalid).
std::pair<Recompute, int64_t> parse_recompute(const std::string& text);

// What one layer keeps per micro-batch until its backward, bytes.
struct LayerActivation {
  double qkvo = 0, attention = 0, norm = 0, add = 0;                        // attention part
  double dispatch = 0, gmm1 = 0, activation = 0, combine = 0, moe_add = 0;  // experts
  double ffn = 0;                                                           // dense feed-forward
  double attention_part() const { return qkvo + attention + norm + add; }
  double moe_part() const { return dispatch + gmm1 + activation + combine + moe_add; }
  double total() const { return attention_part() + moe_part() + ffn; }
};
// Before recomputation, of `tokens` tokens of a micro-batch. rows_per_token: topk where balanced,
// experts where all land on one device. Sequence parallelism is assumed where tp > 1, as the
// training engines here do it. fused: SwiGLU keeps its product (as wide as an expert) and not both
// halves once more, as the published Ascend table counts it.
LayerActivation layer_activation(const TwinModel& model, const balance::Layout& layout,
                                 double tokens, double rows_per_token, bool moe_layer, bool fused);
// What stays of it under `mode`, and what comes back while one layer runs backward.
struct KeptActivation {
  double kept = 0;
  double peak = 0;
};
KeptActivation kept_activation(const LayerActivation& layer, Recompute mode, double input_bytes);

struct TrainMemorySettings {
  balance::Layout layout;
  std::vector<int64_t> pp_layers;  // empty = even
  int64_t virtual_stages = 1;
  int64_t micro_batches = 1;
  double micro_batch_tokens = 0;  // of a whole micro-batch, before CP
  Recompute recompute = Recompute::kNone;
  int64_t recompute_layers = -1;  // of a stage, -1 = all
  int64_t zero_stage = 0;         // 1 optimizer, 2 + gradients, 3 + weights over dp (and cp)
  bool optimizer_on_host = false;
  bool keeps_logits = false;        // the head keeps [rows, vocab] values until backward
  bool fused_loss = true;           // then only f32 logits of them
  int64_t lora_rank = 0;            // gradients and optimizer of adapters only
  bool lora_gathers_inputs = true;  // sequence-parallel inputs of adapted layers are kept gathered
  double worst_rows_factor = 1;     // rows on the busiest device over the balanced ones
  bool fused_swiglu = true;
};
// The settings that a run states, with its engine's habits where it is silent.
TrainMemorySettings train_memory_settings(const SimRun& run);

// Named parts sum to total; the largest stage decides.
struct MemoryUse {
  std::string phase;  // "rollout", "train", "log_prob", "reshard"
  int64_t stage = 0;
  std::vector<std::pair<std::string, double>> parts;  // bytes
  double total() const;
  double part(const std::string& name) const;  // 0 if absent
};

// One entry per pipeline stage; parts: weights, gradients, optimizer, unsharded, activations,
// layer_peak, logits, workspace. Coefficients (of the training stack): weight_bytes_per_param,
// gradient_bytes_per_param, optimizer_bytes_per_param, selective_kept_share (1),
// backward_dense_copies, backward_expert_copies (1: a layer's activations held at once while it
// runs backward under full recomputation), unsharded_weight_layers, unsharded_gradient_layers (1),
// logit_bytes and fused_logit_bytes (of one kept logit), workspace_bytes.
std::vector<MemoryUse> train_memory(const TwinModel& model, const TrainMemorySettings& settings,
                                    const Coefficients& coefficients);
// The stage with the largest total; stages must not be empty.
const MemoryUse& largest_stage(const std::vector<MemoryUse>& stages);

struct RolloutMemorySettings {
  balance::Layout layout;
  double memory_bytes = 0;  // of the device
  double memory_fraction = 0.9;
  std::string dtype = "bf16", kv_dtype = "bf16";
  int64_t max_batched_tokens = 8192;
  int64_t chunk_moe = 0;  // rows per rank in one expert pass; 0 = unchunked
  bool worst_case_routing = false;
  double other_bytes = 0;  // of other processes and contexts
};
struct RolloutMemory {
  MemoryUse use;          // weights, activations of a prefill, others
  double kv_bytes = 0;    // what is left for the cache, >= 0
  int64_t kv_tokens = 0;  // per rank group that shares the heads
};
RolloutMemory rollout_memory(const TwinModel& model, const RolloutMemorySettings& settings);

// Weights of one engine on one device and the cache of `tokens` tokens: the peak of a plain
// generation loop.
double inference_bytes(const TwinModel& model, int64_t tp, const std::string& dtype, double tokens);

// Rows of one expert pass on a device (chunk 0: all tokens at once) times the bytes of a row.
double moe_row_bytes(const TwinModel& model);
double moe_pass_rows(const TwinModel& model, double tokens_per_rank, int64_t chunk, int64_t ep,
                     bool worst);

// Model states as DeepSpeed's ZeRO-3 estimate counts them.
struct ZeroEstimate {
  double device_bytes = 0, host_bytes = 0;
};
ZeroEstimate zero3_estimate(double params, double largest_layer_params, int64_t devices,
                            int64_t devices_per_node, bool offload_optimizer, bool offload_params,
                            double buffer_factor = 1.5, bool zero_init = true);

}  // namespace keel::sim
