#include "keel/sim/memory.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "keel/base/error.h"
#include "keel/sim/hardware.h"
#include "keel/sim/numbers.h"

namespace keel::sim {
namespace {
double ceil_share(int64_t total, int64_t parts) { return to_double((total + parts - 1) / parts); }

}  // namespace

std::pair<Recompute, int64_t> parse_recompute(const std::string& text) {
  constexpr std::array<std::pair<const char*, Recompute>, 11> kModes = {{
      {"", Recompute::kNone},
      {"none", Recompute::kNone},
      {"none or selective", Recompute::kNone},
      {"selective", Recompute::kCoreAttention},
      {"core attention", Recompute::kCoreAttention},
      {"full", Recompute::kFull},
      {"mlp", Recompute::kMlp},
      {"moe_zero_memory_level0", Recompute::kMoeZeroMemory0},
      {"moe_zero_memory_level1", Recompute::kMoeZeroMemory1},
      {"offload_activations", Recompute::kOffload},
      {"offload", Recompute::kOffload},
  }};
  for (const auto& [name, mode] : kModes) {
    if (text == name) return {mode, -1};
  }
  int64_t layers = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), layers);
  if (error == std::errc() && layers >= 0 && std::string(end).starts_with(" layer")) {
    return {Recompute::kFull, layers};
  }
  std::vector<std::string> names;
  for (const auto& [name, mode] : kModes) {
    if (*name != 0) names.emplace_back(name);
  }
  throw_invalid("[layout.train.recompute] expected \"N layers\" or one of {}; got {}",
                fmt::join(names, ", "), text);
}

LayerActivation layer_activation(const TwinModel& m, const balance::Layout& layout, double tokens,
                                 double rows_per_token, bool moe_layer, bool fused) {
  constexpr double kBytes = 2;  // bf16
  const double local = tokens / layout.cp;
  const double split = local / layout.tp;  // sequence parallel between the projections
  const double hidden = to_double(m.hidden);
  const bool mla = m.attention == AttentionKind::kMla;
  const double heads = to_double(m.q_heads) / layout.tp;
  const double q = heads * to_double(mla ? m.nope_dim + m.rope_dim : m.head_dim);
  const double k = mla ? q : ceil_share(m.kv_heads, layout.tp) * to_double(m.head_dim);
  const double v = mla ? heads * to_double(m.v_dim) : k;
  const double out = mla ? v : q;
  LayerActivation a;
  a.qkvo = kBytes * (local * (q + k + v) + split * hidden);
  a.attention = kBytes * local * out;
  a.norm = kBytes * (split * hidden + local * (q + k));  // input norm, q and k norm or rotation
  a.add = kBytes * split * hidden;
  if (moe_layer && m.is_moe()) {
    const double rows = split * rows_per_token;
    const double width = to_double(m.moe_ffn) / layout.etp;
    a.dispatch = kBytes * rows * hidden;
    a.gmm1 = kBytes * rows * 2 * width;
    a.activation = kBytes * rows * (fused ? 1 : 2) * width;
    a.combine = kBytes * split * hidden;
    a.moe_add = kBytes * split * hidden;
    a.ffn = kBytes * local * to_double(m.shared_experts) * 3 * to_double(m.moe_ffn) / layout.tp;
  } else {
    const double matrices = m.gated_ffn ? 3 : 2;
    a.ffn = kBytes * (local * matrices * to_double(m.ffn) / layout.tp + split * hidden);
  }
  return a;
}

KeptActivation kept_activation(const LayerActivation& a, Recompute mode, double input_bytes) {
  switch (mode) {
    case Recompute::kNone:
    case Recompute::kCoreAttention:
      return {a.total(), 0};
    case Recompute::kFull:
      return {input_bytes, a.total()};
    case Recompute::kOffload:
      return {0, a.total()};
    case Recompute::kMlp:
      return {a.attention_part() + a.combine + a.moe_add,
              a.dispatch + a.gmm1 + a.activation + a.ffn};
    case Recompute::kMoeZeroMemory0:
      return {a.total() - a.dispatch - a.activation, a.dispatch + a.activation};
    case Recompute::kMoeZeroMemory1:
      return {a.total() - a.dispatch - a.activation - a.gmm1, a.dispatch + a.activation + a.gmm1};
  }
  KEEL_CHECK(false, "mode {}", static_cast<int>(mode));
}

double MemoryUse::total() const {
  double sum = 0;
  for (const auto& [name, bytes] : parts) sum += bytes;
  return sum;
}

double MemoryUse::part(const std::string& name) const {
  for (const auto& [known, bytes] : parts) {
    if (known == name) return bytes;
  }
  return 0;
}

const MemoryUse& largest_stage(const std::vector<MemoryUse>& stages) {
  KEEL_CHECK(!stages.empty(), "no stage");
  return *std::max_element(stages.begin(), stages.end(),
                           [](const auto& a, const auto& b) { return a.total() < b.total(); });
}

double moe_row_bytes(const TwinModel& m) {
  return 2.0 * to_double(m.hidden + 3 * m.moe_ffn);  // input, gate and up, product
}

double moe_pass_rows(const TwinModel& m, double tokens_per_rank, int64_t chunk, int64_t ep,
                     bool worst) {
  const double tokens = chunk > 0 ? std::min(tokens_per_rank, to_double(chunk)) : tokens_per_rank;
  const double local_experts = ceil_share(m.experts, ep);
  const double per_token = worst ? std::min(to_double(m.topk), local_experts)
                                 : to_double(m.topk) * local_experts / to_double(m.experts);
  return tokens * to_double(ep) * per_token;
}

RolloutMemory rollout_memory(const TwinModel& m, const RolloutMemorySettings& s) {
  const auto& layout = s.layout;
  const double tokens = to_double(s.max_batched_tokens);
  RolloutMemory out;
  out.use.phase = "rollout";
  out.use.parts.emplace_back("weights", rank_params(m, layout).total() * dtype_bytes(s.dtype));
  const auto a = layer_activation(m, layout, tokens, 0, false, true);
  double peak = a.attention_part() + (m.is_moe() ? 0 : a.ffn);
  if (m.is_moe()) {
    const double rows = moe_pass_rows(m, tokens / layout.tp, s.chunk_moe,
                                      std::max<int64_t>(1, layout.ep), s.worst_case_routing);
    peak = std::max(peak, a.add + rows * (moe_row_bytes(m) + 2 * to_double(m.hidden)));
  }
  out.use.parts.emplace_back("activations", peak);
  out.use.parts.emplace_back("others", s.other_bytes);
  out.kv_bytes = std::max(0.0, s.memory_fraction * s.memory_bytes - out.use.total());
  const double per_token = kv_bytes_per_token(m, layout.tp, dtype_bytes(s.kv_dtype));
  out.kv_tokens = static_cast<int64_t>(out.kv_bytes / std::max(1.0, per_token));
  out.use.parts.emplace_back("kv", out.kv_bytes);
  return out;
}

double inference_bytes(const TwinModel& m, int64_t tp, const std::string& dtype, double tokens) {
  balance::Layout layout;
  layout.tp = static_cast<int32_t>(tp);
  layout.etp = static_cast<int32_t>(m.is_moe() ? tp : 1);
  constexpr double kContext = 36.0 * 1024 * 1024;  // cuBLAS workspace and inputs
  return rank_params(m, layout).total() * dtype_bytes(dtype) +
         kv_bytes_per_token(m, tp, 2) * tokens + kContext;
}

// Formula of DeepSpeed's stage3.py: bf16 weights and gradients, f32 master, moments and gradient
// are 18 bytes; a largest layer is live unsharded (weights and gradients, 4 bytes).
ZeroEstimate zero3_estimate(double params, double largest, int64_t devices,
                            int64_t devices_per_node, bool offload_optimizer, bool offload_params,
                            double buffer_factor, bool zero_init) {
  const double n = to_double(devices), local = to_double(devices_per_node);
  const double node_share = local / n;
  ZeroEstimate e;
  const double live = 4 * largest;
  double host = 0;
  if (!offload_optimizer) {
    e.device_bytes = live + std::ceil(18 * params / n);
    host = largest * 4 * local;
    if (!zero_init) host = std::max(host, params * 4 * local);
  } else if (offload_params) {
    e.device_bytes = live;
    host = params * 18 * node_share;
    if (!zero_init) host = std::max(host, params * 4 * local);
  } else {
    e.device_bytes = live + std::ceil(2 * params / n);
    host = params * 16 * node_share;
    if (!zero_init) host = std::max(host, params * 4 * local);
  }
  e.host_bytes = host * buffer_factor;
  return e;
}

}  // namespace keel::sim
