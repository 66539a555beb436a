#include "keel/base/error.h"
#include "keel/sim/input/fields.h"
#include "keel/sim/model.h"
#include "keel/spec/model_spec.h"

namespace keel::sim {
namespace {

TwinModel read_model(const std::string& name, MapReader& in) {
  TwinModel m;
  m.name = name;
  for (const char* key : {"layers", "hidden", "q_heads", "kv_heads", "head_dim", "vocab"}) {
    in.require(key);
  }
  in.read("layers", m.layers, 1);
  in.read("hidden", m.hidden, 1);
  in.read("q_heads", m.q_heads, 1);
  in.read("kv_heads", m.kv_heads, 1);
  in.read("head_dim", m.head_dim, 1);
  in.read("vocab", m.vocab, 1);
  const std::pair<const char*, int64_t*> counts[] = {
      {"ffn", &m.ffn},
      {"experts", &m.experts},
      {"topk", &m.topk},
      {"moe_ffn", &m.moe_ffn},
      {"shared_experts", &m.shared_experts},
      {"dense_layers", &m.dense_layers},
      {"q_lora", &m.q_lora},
      {"kv_lora", &m.kv_lora},
      {"rope_dim", &m.rope_dim},
      {"nope_dim", &m.nope_dim},
      {"v_dim", &m.v_dim},
      {"full_attention_every", &m.full_attention_every},
      {"linear_k_heads", &m.linear_k_heads},
      {"linear_v_heads", &m.linear_v_heads},
      {"linear_k_dim", &m.linear_k_dim},
      {"linear_v_dim", &m.linear_v_dim},
      {"conv_width", &m.conv_width},
      {"sliding_window", &m.sliding_window},
      {"sliding_every", &m.sliding_every}};
  for (const auto& [key, value] : counts) in.read(key, *value);
  in.read("tied_embeddings", m.tied_embeddings);
  in.read("gated_ffn", m.gated_ffn);
  in.read("gated_q", m.gated_q);
  std::string attention = "gqa";
  in.read("attention", attention);
  if (attention == "mla") {
    m.attention = AttentionKind::kMla;
  } else if (attention == "hybrid") {
    m.attention = AttentionKind::kHybrid;
  } else if (attention != "gqa") {
    in.fault("attention", "gqa, mla or hybrid", attention);
  }
  if (m.experts > 0 && (m.topk < 1 || m.topk > m.experts || m.moe_ffn < 1)) {
    in.fault("experts", "topk of 1 to experts and moe_ffn above 0", "other values");
  }
  if (m.attention == AttentionKind::kMla && (m.kv_lora < 1 || m.v_dim < 1)) {
    in.fault("attention", "kv_lora, rope_dim, nope_dim and v_dim with mla", "none");
  }
  if (m.dense_layers > m.layers) in.fault("dense_layers", "at most `layers`", "more");
  for (const char* key : {"confidence", "params_total_b", "params_active_b", "source", "note"}) {
    in.ignore(key);
  }
  in.finish(Unknown::kError);
  return m;
}

int64_t need(const Json& config, const char* key, const std::string& name) {
  const auto it = config.find(key);
  KEEL_REQUIRE(it != config.end() && it->is_number_integer() && it->get<int64_t>() >= 0,
               "[{} {}] expected a whole number, got {}; check config.json", name, key,
               it == config.end() ? "nothing" : it->dump());
  return it->get<int64_t>();
}

int64_t optional_count(const Json& config, const char* key, int64_t fallback,
                       const std::string& name) {
  const auto it = config.find(key);
  return it == config.end() || it->is_null() ? fallback : need(config, key, name);
}

TwinModel common_dims(const Json& config, const std::string& name) {
  TwinModel m;
  m.name = name;
  m.layers = need(config, "num_hidden_layers", name);
  m.hidden = need(config, "hidden_size", name);
  m.q_heads = need(config, "num_attention_heads", name);
  m.kv_heads = optional_count(config, "num_key_value_heads", m.q_heads, name);
  m.vocab = need(config, "vocab_size", name);
  m.ffn = optional_count(config, "intermediate_size", 0, name);
  m.moe_ffn = optional_count(config, "moe_intermediate_size", 0, name);
  const auto tied = config.find("tie_word_embeddings");
  m.tied_embeddings = tied != config.end() && tied->is_boolean() && tied->get<bool>();
  KEEL_REQUIRE(m.layers > 0 && m.hidden > 0 && m.q_heads > 0 && m.kv_heads > 0 && m.vocab > 0,
               "[{}] expected dimensions above 0; check config.json", name);
  return m;
}

TwinModel deepseek(const Json& config, const std::string& name) {
  auto m = common_dims(config, name);
  m.attention = AttentionKind::kMla;
  m.experts = need(config, "n_routed_experts", name);
  m.topk = need(config, "num_experts_per_tok", name);
  m.shared_experts = optional_count(config, "n_shared_experts", 0, name);
  m.dense_layers = optional_count(config, "first_k_dense_replace", 0, name);
  m.q_lora = optional_count(config, "q_lora_rank", 0, name);
  m.kv_lora = need(config, "kv_lora_rank", name);
  m.rope_dim = need(config, "qk_rope_head_dim", name);
  m.nope_dim = need(config, "qk_nope_head_dim", name);
  m.v_dim = need(config, "v_head_dim", name);
  m.head_dim = m.nope_dim;
  return m;
}

TwinModel qwen3_next(const Json& config, const std::string& name) {
  auto m = common_dims(config, name);
  m.attention = AttentionKind::kHybrid;
  m.gated_q = true;
  m.head_dim = need(config, "head_dim", name);
  m.full_attention_every = optional_count(config, "full_attention_interval", 4, name);
  m.experts = optional_count(config, "num_experts", 0, name);
  m.topk = optional_count(config, "num_experts_per_tok", 0, name);
  const int64_t shared = optional_count(config, "shared_expert_intermediate_size", 0, name);
  KEEL_REQUIRE(m.moe_ffn == 0 || shared % m.moe_ffn == 0,
               "[{} shared_expert_intermediate_size] expected a multiple of {}, got {}", name,
               m.moe_ffn, shared);
  m.shared_experts = m.moe_ffn > 0 ? shared / m.moe_ffn : 0;
  m.linear_k_heads = need(config, "linear_num_key_heads", name);
  m.linear_v_heads = need(config, "linear_num_value_heads", name);
  m.linear_k_dim = need(config, "linear_key_head_dim", name);
  m.linear_v_dim = need(config, "linear_value_head_dim", name);
  m.conv_width = optional_count(config, "linear_conv_kernel_dim", 4, name);
  return m;
}

}  // namespace

std::map<std::string, TwinModel> parse_models(const std::string& text, const std::string& name) {
  const auto file = open_input(text, name, "sim-models/1");
  MapReader in(file, file->root, "", 1);
  std::map<std::string, TwinModel> out;
  auto models = in.map("models");
  for (auto& [key, reader] : models.named_maps()) out[key] = read_model(key, reader);
  for (const char* key : {"schema", "note"}) in.ignore(key);
  in.finish(Unknown::kError);
  file->findings.throw_if_errors();
  return out;
}

std::map<std::string, TwinModel> load_models(const std::string& path) {
  return parse_models(read_input_text(path), path);
}

TwinModel model_from_spec(const ModelSpec& spec, const std::string& name) {
  TwinModel m;
  m.name = name;
  m.layers = spec.layers;
  m.hidden = spec.hidden;
  m.q_heads = spec.heads;
  m.kv_heads = spec.kv_heads;
  m.head_dim = spec.head_dim;
  m.ffn = spec.intermediate;
  m.vocab = spec.vocab;
  m.tied_embeddings = spec.tied;
  if (spec.has_moe_layers()) {
    m.experts = spec.moe.num_experts;
    m.topk = spec.moe.top_k;
    m.moe_ffn = spec.moe.intermediate;
    for (int64_t i = 0; i < spec.layers; ++i) m.dense_layers += spec.is_moe_layer(i) ? 0 : 1;
    if (m.dense_layers == 0) m.ffn = 0;
  }
  return m;
}

TwinModel model_from_config(const Json& config, const std::string& name) {
  KEEL_REQUIRE(config.is_object(), "[{}] expected a JSON object; check config.json", name);
  const std::string type = config.value("model_type", "");
  if (type == "deepseek_v2" || type == "deepseek_v3") return deepseek(config, name);
  if (type == "qwen3_next") return qwen3_next(config, name);
  return model_from_spec(model_spec_from_json(config), name);
}

}  // namespace keel::sim
