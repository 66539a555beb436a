#include <algorithm>
#include <cmath>

#include "keel/base/error.h"
#include "keel/sim/catalog.h"
#include "keel/sim/memory.h"
#include "keel/sim/numbers.h"
#include "keel/sim/predict.h"

namespace keel::sim {
namespace {

std::vector<int64_t> stage_begins(const TwinModel& m, const TrainMemorySettings& s) {
  const int64_t stages = s.layout.pp;
  std::vector<int64_t> begins = {0};
  for (int64_t i = 0; i < stages; ++i) {
    const bool given = static_cast<int64_t>(s.pp_layers.size()) == stages;
    const int64_t layers = given ? s.pp_layers[static_cast<size_t>(i)]
                                 : m.layers / stages + (i < m.layers % stages ? 1 : 0);
    begins.push_back(std::min(m.layers, begins.back() + layers));
  }
  return begins;
}

// Micro-batches times layers whose activations a stage holds at its peak: 1F1B, interleaved 1F1B.
double layers_in_flight(const TrainMemorySettings& s, int64_t stage, int64_t layers) {
  const int64_t ahead = s.layout.pp - stage;
  if (s.virtual_stages <= 1) return to_double(std::min(ahead, s.micro_batches) * layers);
  const int64_t chunks = std::min(2 * (ahead - 1) + (s.virtual_stages - 1) * s.layout.pp + 1,
                                  s.micro_batches * s.virtual_stages);
  return to_double(chunks) * to_double(layers) / to_double(s.virtual_stages);
}

struct Adapter {
  double dense = 0, experts = 0;  // parameters of one layer's adapters, whole model
};
Adapter adapter_params(const TwinModel& m, int64_t rank) {
  const int64_t q = m.q_heads * m.head_dim, kv = m.kv_heads * m.head_dim;
  Adapter a;
  a.dense = to_double(rank * (2 * (m.hidden + q) + 2 * (m.hidden + kv)));
  const int64_t shared = m.is_moe() ? m.shared_experts : 1;
  a.dense += to_double(rank * shared * 3 * (m.hidden + (m.is_moe() ? m.moe_ffn : m.ffn)));
  a.experts = to_double(rank * m.experts * 3 * (m.hidden + m.moe_ffn));
  return a;
}

// What one stage is made of, before any coefficient.
struct StageFacts {
  double layers = 0, in_flight = 0;
  double dense = 0, experts = 0;  // weights of this rank, not split over data
  double trained_dense = 0, trained_experts = 0;
  double dense_shards = 1, expert_shards = 1;  // data ranks that could share them
  double layer_params = 0, head_params = 0;    // largest layer, largest table of this rank
  bool has_head = false;
};

StageFacts stage_facts(const TwinModel& m, const TrainMemorySettings& s, int64_t stage,
                       int64_t begin, int64_t end) {
  const auto& l = s.layout;
  StageFacts f;
  const bool first = stage == 0, last = stage + 1 == l.pp;
  const auto r = rank_params(m, l, begin, end, first, last);
  f.layers = to_double(end - begin);
  f.in_flight = layers_in_flight(s, stage, end - begin);
  f.dense = r.dense();
  f.experts = r.experts;
  f.trained_dense = f.dense;
  f.trained_experts = f.experts;
  if (s.lora_rank > 0) {
    const auto a = adapter_params(m, s.lora_rank);
    f.trained_dense = f.layers * a.dense / l.tp;
    f.trained_experts = f.layers * a.experts / (l.ep * l.etp);
  }
  f.dense_shards = to_double(int64_t{l.dp} * l.cp);
  f.expert_shards = std::max(1.0, to_double(int64_t{l.dp} * l.cp * l.tp) / (l.ep * l.etp));
  const double body = r.qkv + r.o + r.ffn + r.router + r.experts;
  f.layer_params = f.layers > 0 ? body / f.layers : 0;
  f.head_params = first || last ? to_double(embedding_params(m)) / l.tp : 0;
  f.has_head = last;
  return f;
}

struct Shares {
  double dense, experts;
};
// Bytes of dense and expert parameters, divided over data ranks or not.
double state_bytes(double bytes, bool sharded, const Shares& params, const StageFacts& f) {
  return bytes * (params.dense / (sharded ? f.dense_shards : 1) +
                  params.experts / (sharded ? f.expert_shards : 1));
}

double lora_gathered_bytes(const TwinModel& m, const TrainMemorySettings& s, double tokens) {
  if (s.lora_rank == 0 || !s.lora_gathers_inputs || s.layout.tp == 1) return 0;
  // Inputs of q, k, v and of gate, up, once for the base and once for the adapter; experts get
  // their rows from the dispatch.
  const double inputs = m.is_moe() ? 2 : 4;
  return inputs * tokens / s.layout.cp * to_double(m.hidden) * 2 * (1 - 1.0 / s.layout.tp);
}

}  // namespace

std::vector<MemoryUse> train_memory(const TwinModel& m, const TrainMemorySettings& s,
                                    const Coefficients& c) {
  const double weight = c("weight_bytes_per_param"), gradient = c("gradient_bytes_per_param"),
               optimizer = c("optimizer_bytes_per_param");
  const auto begins = stage_begins(m, s);
  const double rows = to_double(m.topk) * s.worst_rows_factor;
  const auto layer =
      layer_activation(m, s.layout, s.micro_batch_tokens, rows, m.is_moe(), s.fused_swiglu);
  const double input = 2 * s.micro_batch_tokens / (s.layout.cp * s.layout.tp) * to_double(m.hidden);
  auto kept = kept_activation(layer, s.recompute, input);
  if (s.recompute == Recompute::kCoreAttention) kept.kept *= c("selective_kept_share");
  const bool whole_layer = s.recompute == Recompute::kFull || s.recompute == Recompute::kOffload;
  std::vector<MemoryUse> stages;
  for (int64_t i = 0; i < s.layout.pp; ++i) {
    const auto f =
        stage_facts(m, s, i, begins[static_cast<size_t>(i)], begins[static_cast<size_t>(i) + 1]);
    const Shares all = {f.dense, f.experts}, trained = {f.trained_dense, f.trained_experts};
    MemoryUse use;
    use.phase = "train";
    use.stage = i;
    const auto add = [&](const char* name, double bytes) { use.parts.emplace_back(name, bytes); };
    add("weights", state_bytes(weight, s.zero_stage >= 3, all, f) +
                       (s.lora_rank > 0 ? state_bytes(weight, s.zero_stage >= 3, trained, f) : 0));
    add("gradients", state_bytes(gradient, s.zero_stage >= 2, trained, f));
    add("optimizer",
        s.optimizer_on_host ? 0 : state_bytes(optimizer, s.zero_stage >= 1, trained, f));
    double unsharded = 0;
    if (s.zero_stage >= 3) {
      unsharded = 2 * (c("unsharded_weight_layers") * f.layer_params + f.head_params);
      if (s.lora_rank == 0) {
        unsharded += 2 * (c("unsharded_gradient_layers") * f.layer_params + f.head_params);
      }
    }
    add("unsharded", unsharded);
    const double mean = f.layers > 0 ? f.in_flight / f.layers : 0;  // micro-batches in flight
    const double treated =
        s.recompute_layers < 0 ? f.layers : std::min(f.layers, to_double(s.recompute_layers));
    add("activations", mean * (treated * kept.kept + (f.layers - treated) * layer.total()) +
                           f.in_flight * lora_gathered_bytes(m, s, s.micro_batch_tokens));
    add("layer_peak", treated == 0 ? 0
                      : whole_layer
                          ? c("backward_dense_copies") * (layer.attention_part() + layer.ffn) +
                                c("backward_expert_copies") * layer.moe_part()
                          : kept.peak);
    add("logits", f.has_head && s.keeps_logits
                      ? c(s.fused_loss ? "fused_logit_bytes" : "logit_bytes") *
                            s.micro_batch_tokens / s.layout.cp * to_double(m.vocab) / s.layout.tp
                      : 0);
    add("workspace", c("workspace_bytes"));
    stages.push_back(std::move(use));
  }
  return stages;
}

TrainMemorySettings train_memory_settings(const SimRun& run) {
  const auto& t = run.train;
  const auto& w = run.workload;
  TrainMemorySettings s;
  s.layout = train_layout(run);
  s.pp_layers = t.pp_layers;
  s.virtual_stages = std::max<int64_t>(1, t.vp);
  const int64_t micro = std::max<int64_t>(1, w.micro_batch);
  const double length = w.seq_len > 0
                            ? to_double(w.seq_len)
                            : w.seq_len_stats.mean.value_or(to_double(w.seq_len_stats.max));
  s.micro_batch_tokens = length * to_double(micro);
  const int64_t data = s.layout.dp;
  s.micro_batches = w.micro_batches > 0  ? w.micro_batches
                    : w.global_batch > 0 ? std::max<int64_t>(1, w.global_batch / (micro * data))
                                         : s.layout.pp;
  std::tie(s.recompute, s.recompute_layers) = parse_recompute(t.recompute);
  s.optimizer_on_host = !t.optimizer.empty();
  s.lora_rank = t.lora_rank;
  if (t.engine == "fsdp2" || t.engine == "fsdp" || t.engine == "deepspeed-zero3" || t.fsdp > 0) {
    s.zero_stage = 3;
  } else {
    s.zero_stage = 1;  // Megatron's distributed optimizer
  }
  // The RL head computes log-probs in chunks; SFT and pretraining keep the logits.
  s.keeps_logits = w.objective != "rl" && w.algorithm.empty();
  s.fused_loss = t.engine.starts_with("megatron");
  s.fused_swiglu = t.engine != "megatron-mindspeed";
  return s;
}

std::vector<Prediction> predict_train_memory(const SimRun& run, const Catalog& catalog,
                                             const Calibration& calibration,
                                             const PredictOptions& options) {
  std::vector<Prediction> out;
  const auto wanted = [](const std::string& target) { return target.starts_with("peak_memory_g"); };
  if (std::none_of(run.targets.begin(), run.targets.end(), wanted)) return out;
  const auto& model = catalog.find_model(run.model);
  const auto& hardware = catalog.find_hardware(run.hardware);
  const Coefficients c(calibration, hardware.id, hardware.vendor, run.train.engine, "",
                       options.used);
  const auto stages = train_memory(model, train_memory_settings(run), c);
  const auto& peak = largest_stage(stages);
  for (const auto& target : run.targets) {
    if (!wanted(target)) continue;
    const double unit = target == "peak_memory_gib" ? 1024.0 * 1024 * 1024 : 1e9;
    Prediction p{target, peak.total() / unit, 0, {}};
    for (const auto& [name, bytes] : peak.parts) p.parts.emplace_back(name, bytes / unit);
    out.push_back(std::move(p));
  }
  return out;
}

}  // namespace keel::sim
