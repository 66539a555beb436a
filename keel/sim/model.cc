#include "keel/sim/model.h"

#include <algorithm>
#include <cmath>

#include "keel/base/error.h"

namespace keel::sim {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t ffn_matrices(const TwinModel& m) { return m.gated_ffn ? 3 : 2; }

bool linear_dims_known(const TwinModel& m) { return m.linear_v_heads > 0; }

// Share of the layers that have softmax attention, as counts.
struct LayerKinds {
  int64_t full = 0, linear = 0;
};
LayerKinds layer_kinds(const TwinModel& m) {
  const int64_t full = m.full_attention_layers();
  return {full, m.layers - full};
}

int64_t attention_params(const TwinModel& m) {
  const auto p = layer_params(m);
  const auto kinds = layer_kinds(m);
  return kinds.full * (p.qkv + p.o) + kinds.linear * (p.linear_qkv + p.linear_o);
}

// q.k and p.v widths of a head, summed.
double head_widths(const TwinModel& m) {
  if (m.attention == AttentionKind::kMla) {
    return static_cast<double>(m.nope_dim + m.rope_dim + m.v_dim);
  }
  return 2.0 * static_cast<double>(m.head_dim);
}

// Elements of q and of k, v per rank (MLA: replicated down projections as shared).
double rank_qkv(const TwinModel& m, int64_t tp) {
  const auto h = static_cast<double>(m.hidden);
  const double heads = static_cast<double>(m.q_heads) / static_cast<double>(tp);
  if (m.attention == AttentionKind::kMla) {
    const double q = m.q_lora > 0 ? h * static_cast<double>(m.q_lora) +
                                        static_cast<double>(m.q_lora) * heads *
                                            static_cast<double>(m.nope_dim + m.rope_dim)
                                  : h * heads * static_cast<double>(m.nope_dim + m.rope_dim);
    return q + h * static_cast<double>(m.kv_lora + m.rope_dim) +
           static_cast<double>(m.kv_lora) * heads * static_cast<double>(m.nope_dim + m.v_dim);
  }
  const double kv = static_cast<double>(ceil_div(m.kv_heads, tp));
  return h * static_cast<double>(m.head_dim) * (heads * (m.gated_q ? 2 : 1) + 2 * kv);
}

}  // namespace

int64_t TwinModel::full_attention_layers() const {
  if (attention != AttentionKind::kHybrid || full_attention_every <= 0) return layers;
  return layers / full_attention_every;
}

LayerParams layer_params(const TwinModel& m) {
  LayerParams p;
  if (m.attention == AttentionKind::kMla) {
    const int64_t qk = m.nope_dim + m.rope_dim;
    p.qkv = (m.q_lora > 0 ? m.hidden * m.q_lora + m.q_lora * m.q_heads * qk
                          : m.hidden * m.q_heads * qk) +
            m.hidden * (m.kv_lora + m.rope_dim) + m.kv_lora * m.q_heads * (m.nope_dim + m.v_dim);
    p.o = m.q_heads * m.v_dim * m.hidden;
  } else {
    p.qkv = m.hidden * m.head_dim * (m.q_heads * (m.gated_q ? 2 : 1) + 2 * m.kv_heads);
    p.o = m.q_heads * m.head_dim * m.hidden;
  }
  p.linear_qkv = p.qkv;
  p.linear_o = p.o;
  if (linear_dims_known(m)) {
    const int64_t k = m.linear_k_heads * m.linear_k_dim, v = m.linear_v_heads * m.linear_v_dim;
    p.linear_qkv = m.hidden * (2 * k + 2 * v + 2 * m.linear_v_heads) + (2 * k + v) * m.conv_width;
    p.linear_o = v * m.hidden;
  }
  p.ffn = ffn_matrices(m) * m.hidden * m.ffn;
  if (m.is_moe()) {
    p.expert = ffn_matrices(m) * m.hidden * m.moe_ffn;
    p.shared = m.shared_experts * p.expert;
    p.router = m.experts * m.hidden;
  }
  return p;
}

int64_t embedding_params(const TwinModel& m) { return m.vocab * m.hidden; }

int64_t total_params(const TwinModel& m) {
  const auto p = layer_params(m);
  const int64_t moe = m.moe_layers();
  return embedding_params(m) * (m.tied_embeddings ? 1 : 2) + attention_params(m) +
         (m.layers - moe) * p.ffn + moe * (p.router + p.shared + m.experts * p.expert);
}

int64_t active_params(const TwinModel& m) {
  const auto p = layer_params(m);
  const int64_t moe = m.moe_layers();
  return embedding_params(m) + attention_params(m) + (m.layers - moe) * p.ffn +
         moe * (p.router + p.shared + m.topk * p.expert);
}

RankParams rank_params(const TwinModel& m, const balance::Layout& layout, int64_t begin,
                       int64_t end, bool with_embedding, bool with_head) {
  const auto p = layer_params(m);
  const double tp = layout.tp;
  const double n = static_cast<double>(end - begin);
  const auto kinds = layer_kinds(m);
  const double full =
      m.layers > 0 ? n * static_cast<double>(kinds.full) / static_cast<double>(m.layers) : 0;
  const double linear = n - full;
  const double dense =
      static_cast<double>(std::clamp<int64_t>(m.layers - m.moe_layers() - begin, 0, end - begin));
  const double moe = n - dense;
  RankParams r;
  const double table = static_cast<double>(embedding_params(m)) / tp;
  if (with_embedding) r.embedding_and_head += table;
  if (with_head && !(m.tied_embeddings && with_embedding)) r.embedding_and_head += table;
  r.qkv = full * rank_qkv(m, layout.tp) + linear * (linear_dims_known(m)
                                                        ? static_cast<double>(p.linear_qkv) / tp
                                                        : rank_qkv(m, layout.tp));
  r.o = (full * static_cast<double>(p.o) + linear * static_cast<double>(p.linear_o)) / tp;
  r.ffn = (dense * static_cast<double>(p.ffn) + moe * static_cast<double>(p.shared)) / tp;
  if (m.is_moe()) {
    r.router = moe * static_cast<double>(p.router);
    r.experts = moe * static_cast<double>(m.experts) * static_cast<double>(p.expert) /
                (static_cast<double>(layout.ep) * static_cast<double>(layout.etp));
  }
  return r;
}

RankParams rank_params(const TwinModel& m, const balance::Layout& layout) {
  return rank_params(m, layout, 0, m.layers, true, true);
}

double kv_bytes_per_token(const TwinModel& m, int64_t tp, double bytes) {
  const auto full = static_cast<double>(m.full_attention_layers());
  if (m.attention == AttentionKind::kMla) {
    return full * static_cast<double>(m.kv_lora + m.rope_dim) * bytes;
  }
  return full * 2 * static_cast<double>(ceil_div(m.kv_heads, tp) * m.head_dim) * bytes;
}

double state_bytes_per_sequence(const TwinModel& m, int64_t tp) {
  if (!linear_dims_known(m)) return 0;
  const auto layers = static_cast<double>(layer_kinds(m).linear);
  const double v_heads = static_cast<double>(m.linear_v_heads) / static_cast<double>(tp);
  const double k_heads = static_cast<double>(m.linear_k_heads) / static_cast<double>(tp);
  const double state = v_heads * static_cast<double>(m.linear_k_dim * m.linear_v_dim) * 4;
  const double conv = (2 * k_heads * static_cast<double>(m.linear_k_dim) +
                       v_heads * static_cast<double>(m.linear_v_dim)) *
                      static_cast<double>(std::max<int64_t>(0, m.conv_width - 1)) * 2;
  return layers * (state + conv);
}

double linear_flops(const TwinModel& m, double tokens) {
  double per_token = 2.0 * static_cast<double>(active_params(m) - embedding_params(m));
  if (linear_dims_known(m)) {
    // Decay, read, write and output of the state: 3 multiply-adds per element.
    per_token += 6.0 * static_cast<double>(layer_kinds(m).linear * m.linear_v_heads *
                                           m.linear_k_dim * m.linear_v_dim);
  }
  return per_token * tokens;
}

double head_flops(const TwinModel& m, double tokens) {
  return 2.0 * static_cast<double>(embedding_params(m)) * tokens;
}

double attention_flops(const TwinModel& m, double len) {
  const double per_pair = 2.0 * static_cast<double>(m.q_heads) * head_widths(m);
  const auto full = static_cast<double>(m.full_attention_layers());
  const double pairs = len * (len + 1) / 2;
  if (m.sliding_window <= 0 || m.sliding_every <= 0) return full * per_pair * pairs;
  const double windowed = std::floor(full / static_cast<double>(m.sliding_every));
  const double w = std::min(len, static_cast<double>(m.sliding_window));
  const double window_pairs = w * (w + 1) / 2 + (len - w) * w;
  return per_pair * ((full - windowed) * pairs + windowed * window_pairs);
}

double attention_decode_flops(const TwinModel& m, double context) {
  const double per_pair = 2.0 * static_cast<double>(m.q_heads) * head_widths(m);
  const auto full = static_cast<double>(m.full_attention_layers());
  if (m.sliding_window <= 0 || m.sliding_every <= 0) return full * per_pair * context;
  const double windowed = std::floor(full / static_cast<double>(m.sliding_every));
  return per_pair * ((full - windowed) * context +
                     windowed * std::min(context, static_cast<double>(m.sliding_window)));
}

balance::LayoutModel layout_model(const TwinModel& m) {
  balance::LayoutModel out;
  out.num_layers = static_cast<int32_t>(m.layers);
  out.num_heads = static_cast<int32_t>(m.q_heads);
  out.num_kv_heads = static_cast<int32_t>(m.kv_heads);
  // Where every layer has experts no dense width limits tp; heads already do.
  out.intermediate = static_cast<int32_t>(m.ffn > 0 ? m.ffn : m.q_heads);
  out.num_experts = static_cast<int32_t>(m.experts);
  out.moe_intermediate = static_cast<int32_t>(m.moe_ffn);
  return out;
}

}  // namespace keel::sim
