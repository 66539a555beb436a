#include "keel/sim/train_cost.h"
#include "keel/sim/numbers.h"

#include <algorithm>
#include <cmath>

#include "keel/base/error.h"

namespace keel::sim {
namespace {

// Layers of the stage that decides, and how many of the model's that is.
double stage_layers(const TwinModel& m, const PassSettings& s) {
  if (!s.pp_layers.empty()) {
    return to_double(*std::max_element(s.pp_layers.begin(), s.pp_layers.end()));
  }
  return std::ceil(to_double(m.layers) / s.layout.pp);
}

// Passes over the layers, counted in forward passes.
struct PassCounts {
  double gemm = 1, attention = 1, elementwise = 1, communication = 1;
};

PassCounts pass_counts(const PassSettings& s, bool backward, double layers) {
  PassCounts n;
  if (!backward) return n;
  const bool lora = s.lora_rank > 0;  // frozen weights have no gradient
  double again = 0;
  double again_attention = 0;
  switch (s.recompute) {
    case Recompute::kFull:
    case Recompute::kOffload:
      again = again_attention = 1;
      break;
    case Recompute::kMlp:
    case Recompute::kMoeZeroMemory0:
    case Recompute::kMoeZeroMemory1:
      again = 0.7;  // of the layer's GEMMs, those of the experts
      break;
    case Recompute::kNone:
    case Recompute::kCoreAttention:
      break;
  }
  if (s.recompute_layers >= 0) {
    const double share = std::min(1.0, to_double(s.recompute_layers) / std::max(1.0, layers));
    again *= share;
    again_attention *= share;
  }
  n.gemm = (lora ? 2.0 : 3.0) + again;
  n.attention = 3.5 + again_attention;
  n.elementwise = 3 + again;
  n.communication = 2 + again;
  return n;
}

const LinkLevel& inner_level(const HardwareSpec& hw) { return hw.levels.front(); }

// Bytes per second of a device towards ranks of its own node, and beyond it.
double node_rate(const HardwareSpec& hw, int64_t devices_per_node) {
  double rate = inner_level(hw).bytes_per_s;
  for (const auto& level : hw.levels) {
    if (level.span > 0 && level.span <= std::max<int64_t>(2, devices_per_node)) {
      rate = level.bytes_per_s;
    }
  }
  return rate;
}

double group_rate(const HardwareSpec& hw, int64_t devices_per_node, int64_t ranks) {
  return ranks <= devices_per_node ? node_rate(hw, devices_per_node)
                                   : hw.level_for(ranks).bytes_per_s;
}

// Seconds to exchange `rows` routed copies of tokens (topk a token) within an expert group: each
// token crosses to another node once however many of its experts lie there.
double dispatch_s(const TwinModel& m, const HardwareSpec& hw, const PassSettings& s, double tokens,
                  const Coefficients& c) {
  const double ep = s.layout.ep;
  if (ep <= 1) return 0;
  // Sent in the training dtype, combined in 16 bits.
  const double row = to_double(m.hidden) * (dtype_bytes(s.dtype) + 2) / 2;
  const double topk = to_double(m.topk);
  const double span = std::max(1.0, ep * s.layout.etp / to_double(s.devices_per_node));
  const double local = topk / span * (1 - 1 / std::min(ep, to_double(s.devices_per_node)));
  double away = 0;
  if (span > 1) away = (span - 1) * (1 - std::pow(1 - 1 / span, topk));
  const double inner = node_rate(hw, s.devices_per_node) * c("dispatch_node_efficiency");
  const double outer =
      hw.level_for(static_cast<int64_t>(ep) * s.layout.etp).bytes_per_s * c("dispatch_efficiency");
  return tokens * row * (local / inner + away / outer);
}

struct StageCost {
  double gemm = 0, attention = 0, experts = 0, elementwise = 0, tensor_parallel = 0,
         expert_parallel = 0, context_parallel = 0, host = 0, head = 0, loss = 0;
  double sum() const {
    return gemm + attention + experts + elementwise + tensor_parallel + expert_parallel +
           context_parallel + host + head + loss;
  }
};

// One micro-batch on the slowest stage.
class StageModel {
 public:
  StageModel(const TwinModel& m, const HardwareSpec& hw, const PassSettings& s,
             const Coefficients& c, bool backward)
      : m_(m),
        hw_(hw),
        s_(s),
        c_(c),
        backward_(backward),
        layers_(stage_layers(m, s)),
        share_(layers_ / to_double(m.layers)),
        n_(pass_counts(s, backward, layers_)) {}

  StageCost cost(const MicroBatchLoad& load) const {
    const auto& l = s_.layout;
    const double tp_cp = static_cast<double>(l.tp) * l.cp;
    const double tokens = load.tokens / tp_cp;  // of work; a rank holds tokens / cp of all heads
    const double efficiency = gemm("train_gemm_efficiency");
    const double peak = hw_.peak(s_.dtype);
    const auto p = layer_params(m_);
    const double expert_flops =
        m_.is_moe() ? 2.0 * to_double(m_.topk * p.expert) * to_double(m_.moe_layers()) : 0;
    const double dense_flops = linear_flops(m_, 1) - expert_flops;
    const double hidden = to_double(m_.hidden);
    const double bandwidth = hw_.memory_bytes_per_s;

    StageCost t;
    t.gemm = n_.gemm * tokens * dense_flops * share_ / (peak * efficiency);
    t.attention = n_.attention * load.attention_flops * share_ / tp_cp /
                  (hw_.peak("bf16") * attention_efficiency());
    double bytes = layers_ * hidden * c_("layer_bytes");
    if (s_.lora_rank > 0) bytes += layers_ * hidden * c_("lora_bytes");
    t.elementwise = n_.elementwise * tokens * bytes / bandwidth;
    if (m_.is_moe()) t.experts = expert_s(tokens, expert_flops, peak);
    if (m_.is_moe() && l.ep > 1) {
      const double exposed = s_.ep_overlap ? c_("ep_overlap_exposed") : 1.0;
      const double moe_layers = share_ * to_double(m_.moe_layers());
      t.expert_parallel =
          exposed * n_.communication * moe_layers *
          (2 * imbalance() * dispatch_s(m_, hw_, s_, tokens, c_) + c_("dispatch_host_s"));
    }
    t.tensor_parallel = tensor_parallel_s(load.tokens / l.cp);
    t.context_parallel = context_parallel_s(load);
    t.host = (backward_ ? n_.communication + 1 : 1) * layers_ * c_("layer_host_s");
    t.head = (backward_ ? (s_.lora_rank > 0 ? 2.0 : 3.0) : 1.0) * head_flops(m_, tokens) /
             (hw_.peak("bf16") * c_("train_gemm_efficiency"));
    if (s_.policy_loss)
      t.loss = tokens * to_double(m_.vocab) * c_("vocab_bytes") / bandwidth *
               (backward_ ? 1.0 : 1.0 / 3);
    return t;
  }

  double layers() const { return layers_; }

 private:
  double gemm(const char* name) const {
    return s_.dtype == "fp8" ? c_.kernel("fp8", name) : c_(name);
  }
  double attention_efficiency() const {
    return s_.attention.empty() ? c_("train_attention_efficiency")
                                : c_.kernel(s_.attention, "train_attention_efficiency");
  }
  double imbalance() const {
    return s_.balanced_routing || s_.layout.ep <= 1 ? 1.0 : 1 + c_("routing_imbalance");
  }

  double expert_s(double tokens, double flops, double peak) const {
    const double gemm_s =
        n_.gemm * tokens * flops * share_ * imbalance() / (peak * gemm("train_grouped_efficiency"));
    const double rows = tokens * to_double(m_.topk) * share_ * to_double(m_.moe_layers());
    return gemm_s + n_.elementwise * rows * to_double(m_.hidden) * c_("permute_bytes") /
                        hw_.memory_bytes_per_s;
  }

  // Sequence parallel: all-gather and reduce-scatter around attention and around the feed-forward.
  double tensor_parallel_s(double tokens) const {
    const double tp = s_.layout.tp;
    if (tp <= 1) return 0;
    const double calls = m_.is_moe() && s_.layout.etp == 1 ? 2 : 4;
    const double bytes = tokens * to_double(m_.hidden) * 2 * (tp - 1) / tp;
    const double rate =
        group_rate(hw_, s_.devices_per_node, s_.layout.tp) * c_("train_link_efficiency");
    return c_("tp_exposed") * calls * n_.communication * layers_ * bytes / rate;
  }

  double context_parallel_s(const MicroBatchLoad& load) const {
    const double cp = s_.layout.cp;
    if (cp <= 1) return 0;
    // K and V of a chunk travel cp - 1 times; what attention does not hide is a fixed time a step.
    (void)load;
    return n_.communication * layers_ * (cp - 1) * c_("ring_step_s");
  }

  const TwinModel& m_;
  const HardwareSpec& hw_;
  const PassSettings& s_;
  const Coefficients& c_;
  bool backward_;
  double layers_, share_;
  PassCounts n_;
};

void add_part(PassTime& t, const std::string& name, double seconds) {
  t.total += seconds;
  for (auto& [known, value] : t.parts) {
    if (known == name) {
      value += seconds;
      return;
    }
  }
  t.parts.emplace_back(name, seconds);
}

void add_stage(PassTime& t, const StageCost& s, double times, bool head) {
  add_part(t, "gemm", s.gemm * times);
  add_part(t, "attention", s.attention * times);
  add_part(t, "experts", s.experts * times);
  add_part(t, "elementwise", s.elementwise * times);
  add_part(t, "tensor_parallel", s.tensor_parallel * times);
  add_part(t, "expert_parallel", s.expert_parallel * times);
  add_part(t, "context_parallel", s.context_parallel * times);
  add_part(t, "host", s.host * times);
  if (head) {
    add_part(t, "head", s.head * times);
    add_part(t, "loss", s.loss * times);
  }
}

}  // namespace

PassTime pass_time(const TwinModel& m, const HardwareSpec& hw, const PassSettings& s,
                   std::span<const MicroBatchLoad> micro_batches, const Coefficients& c,
                   bool backward) {
  PassTime out;
  if (micro_batches.empty()) return out;
  const StageModel stage(m, hw, s, c, backward);
  StageCost mean;
  double beats = 0, tokens = 0, attention = 0;
  for (const auto& load : micro_batches) {
    const StageCost cost = stage.cost(load);
    add_stage(out, cost, 1, true);
    beats += cost.sum() - cost.head - cost.loss;
    tokens += load.tokens;
    attention += load.attention_flops;
  }
  // 1F1B: fill and drain cost (pp - 1) beats of a mean micro-batch, less with interleaved stages.
  const double bubble = (s.layout.pp - 1.0) / to_double(std::max<int64_t>(1, s.virtual_stages)) *
                        beats / to_double(static_cast<int64_t>(micro_batches.size()));
  add_part(out, "bubble", bubble);
  if (s.sharded_weights && s.layout.dp > 1) {
    const double gathers = backward ? 3 : 1;  // forward, backward; gradients scattered
    const double bytes = gathers * 2 * to_double(total_params(m)) *
                         to_double(static_cast<int64_t>(micro_batches.size()));
    const double rate =
        group_rate(hw, s.devices_per_node, s.layout.dp) * c("train_link_efficiency");
    add_part(out, "data_parallel", c("dp_exposed") * bytes / rate);
  }
  const double devices = static_cast<double>(s.layout.tp) * s.layout.cp * s.layout.pp;
  out.device_flops =
      (backward ? 3 : 1) * (linear_flops(m, tokens) + head_flops(m, tokens) + attention) / devices;
  return out;
}

PassTime optimizer_time(const TwinModel& m, const HardwareSpec& hw, const PassSettings& s,
                        bool on_host, const Coefficients& c) {
  PassTime out;
  const auto r = rank_params(m, s.layout);
  const double pp = s.layout.pp;
  const double dp = static_cast<double>(s.layout.dp) * s.layout.cp;
  const double expert_dp =
      std::max(1.0, dp * s.layout.tp / (static_cast<double>(s.layout.ep) * s.layout.etp));
  const double own = s.lora_rank > 0 ? 0 : (r.dense() / dp + r.experts / expert_dp) / pp;
  if (on_host) {
    // Master weights, m and v in and out: 2 x 12 bytes a parameter, one way at a time hidden.
    add_part(out, "optimizer", own * 24 / (hw.host_link_bytes_per_s * c("host_link_efficiency")));
  } else {
    add_part(out, "optimizer", own * c("optimizer_bytes") / hw.memory_bytes_per_s);
  }
  if (!s.sharded_weights && dp > 1 && s.lora_rank == 0) {
    const double bytes =
        (r.dense() + (expert_dp > 1 ? r.experts : 0)) / pp * 6;  // f32 sum, bf16 back
    const auto ranks = static_cast<int64_t>(s.layout.tp * dp);
    add_part(out, "data_parallel",
             c("dp_exposed") * bytes /
                 (group_rate(hw, s.devices_per_node, ranks) * c("train_link_efficiency")));
  }
  return out;
}

void add_parts(PassTime& a, const PassTime& b, double times) {
  for (const auto& [name, seconds] : b.parts) add_part(a, name, seconds * times);
  a.device_flops += b.device_flops * times;
}

}  // namespace keel::sim
