// Dimensions of a decoder as far as its cost depends on them, and counts that follow from them:
// parameters, FLOPs, bytes, cache and state per token. Pure arithmetic, no coefficient.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "keel/balance/layout.h"
#include "keel/base/json.h"
#include "keel/spec/model_spec.h"

namespace keel::sim {

enum class AttentionKind { kGqa, kMla, kHybrid };  // hybrid: gated delta net, every n-th full

struct TwinModel {
  std::string name;
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t q_heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn = 0;  // width of dense feed-forward layers; 0 where every layer has experts
  int64_t vocab = 0;
  bool tied_embeddings = false;
  bool gated_ffn = true;
  AttentionKind attention = AttentionKind::kGqa;
  bool gated_q = false;  // q projection also gives an output gate (Qwen3-Next)
  // Experts; 0 = dense. Layers before `dense_layers` are dense.
  int64_t experts = 0;
  int64_t topk = 0;
  int64_t moe_ffn = 0;
  int64_t shared_experts = 0;  // each as wide as moe_ffn
  int64_t dense_layers = 0;
  // MLA (DeepSeek): compressed widths; q_lora 0 = q is not compressed.
  int64_t q_lora = 0, kv_lora = 0, rope_dim = 0, nope_dim = 0, v_dim = 0;
  // Hybrid: every `full_attention_every`-th layer has softmax attention, the others a gated delta
  // net with these heads (0 = unknown: counted like full attention, as models.yaml does).
  int64_t full_attention_every = 0;
  int64_t linear_k_heads = 0, linear_v_heads = 0, linear_k_dim = 0, linear_v_dim = 0,
          conv_width = 0;
  // Sliding window in every `sliding_every`-th layer; 0 = none.
  int64_t sliding_window = 0, sliding_every = 0;

  int64_t moe_layers() const { return experts > 0 ? layers - dense_layers : 0; }
  int64_t full_attention_layers() const;  // layers with a cache that grows
  bool is_moe() const { return experts > 0; }
};

// Weights of one layer by part, of the whole model (elements).
struct LayerParams {
  int64_t qkv = 0;  // q, k, v projections (MLA: all down and up projections)
  int64_t o = 0;
  int64_t ffn = 0;  // dense feed-forward of a dense layer
  int64_t router = 0;
  int64_t shared = 0;                    // shared experts of a MoE layer
  int64_t expert = 0;                    // one routed expert
  int64_t linear_qkv = 0, linear_o = 0;  // the same of a gated delta net layer (hybrid)
};
LayerParams layer_params(const TwinModel& model);

int64_t embedding_params(const TwinModel& model);  // vocab * hidden, one table
int64_t total_params(const TwinModel& model);      // norms and biases left out
int64_t active_params(const TwinModel& model);     // one token; output head in, input table out

// Elements a rank holds, by part. Experts are split by ep and etp, the rest by tp; KV heads are
// copied where tp exceeds them; the router lies on every rank. Stage -1: all layers (no pipeline).
struct RankParams {
  double embedding_and_head = 0;
  double qkv = 0;
  double o = 0;
  double ffn = 0;  // dense feed-forward and shared experts
  double experts = 0;
  double router = 0;
  double dense() const { return embedding_and_head + qkv + o + ffn + router; }  // all but experts
  double total() const { return dense() + experts; }
};
// layers [begin, end); embedding and head counted where with_embedding / with_head.
RankParams rank_params(const TwinModel& model, const balance::Layout& layout, int64_t begin,
                       int64_t end, bool with_embedding, bool with_head);
RankParams rank_params(const TwinModel& model, const balance::Layout& layout);  // whole model

// Cache bytes of one token over all layers on one rank; the MLA latent is copied on every rank.
double kv_bytes_per_token(const TwinModel& model, int64_t tp, double dtype_bytes);
// Bytes that do not grow with length, per sequence (recurrent state in f32, convolution inputs).
double state_bytes_per_sequence(const TwinModel& model, int64_t tp);

// FLOPs of a forward pass (2 per multiply-add), whole model, of `tokens` tokens.
double linear_flops(const TwinModel& model, double tokens);  // layers, without the head
double head_flops(const TwinModel& model, double tokens);
// Attention of one causal sequence of `len` tokens (half of the square; windows respected).
double attention_flops(const TwinModel& model, double len);
// Attention of one query token that reads `context` cached tokens.
double attention_decode_flops(const TwinModel& model, double context);

balance::LayoutModel layout_model(const TwinModel& model);

// `models.yaml` (schema sim-models/1): name -> model.
std::map<std::string, TwinModel> load_models(const std::string& path);
std::map<std::string, TwinModel> parse_models(const std::string& text, const std::string& file);
// A Hugging Face config.json: the families that spec reads, DeepSeek-V2/V3 and Qwen3-Next. Throws
// Error(kInvalid) that names the missing or odd field.
TwinModel model_from_config(const Json& config, const std::string& name);
TwinModel model_from_spec(const ModelSpec& spec, const std::string& name);

}  // namespace keel::sim
