#include "keel/spec/parameters.h"

#include "keel/base/error.h"
#include "keel/io/safetensors.h"

namespace keel {
namespace {

using Shape = std::vector<int64_t>;

class List {
 public:
  void add(ParamRole role, std::string name, Shape shape, std::string origin, int tp_dim) {
    ParamSpec p;
    p.name = prefix + std::move(name);
    p.role = role;
    p.layer = layer;
    p.shape = std::move(shape);
    p.origin = std::move(origin);
    p.tp_dim = tp_dim;
    out.push_back(std::move(p));
  }

  std::vector<ParamSpec> out;
  std::string prefix;
  int64_t layer = -1;
};

void add_attention(const ModelSpec& s, List& list) {
  const std::string q = "num_attention_heads * head_dim", kv = "num_key_value_heads * head_dim";
  const std::string h = "hidden_size";
  const auto projection = [&](ParamRole role, ParamRole bias_role, const char* name, int64_t rows,
                              const std::string& origin) {
    const std::string base = std::string("self_attn.") + name;
    list.add(role, base + ".weight", {rows, s.hidden}, origin + ", " + h, 0);
    if (s.qkv_bias) list.add(bias_role, base + ".bias", {rows}, origin, 0);
  };
  projection(ParamRole::kQ, ParamRole::kQBias, "q_proj", s.q_size(), q);
  projection(ParamRole::kK, ParamRole::kKBias, "k_proj", s.kv_size(), kv);
  projection(ParamRole::kV, ParamRole::kVBias, "v_proj", s.kv_size(), kv);
  if (s.qk_norm) {
    list.add(ParamRole::kQNorm, "self_attn.q_norm.weight", {s.head_dim}, "head_dim", -1);
    list.add(ParamRole::kKNorm, "self_attn.k_norm.weight", {s.head_dim}, "head_dim", -1);
  }
  list.add(ParamRole::kO, "self_attn.o_proj.weight", {s.hidden, s.q_size()}, h + ", " + q, 1);
}

void add_mlp(const ModelSpec& s, List& list) {
  const std::string h = "hidden_size", i = "intermediate_size";
  list.add(ParamRole::kGate, "mlp.gate_proj.weight", {s.intermediate, s.hidden}, i + ", " + h, 0);
  list.add(ParamRole::kUp, "mlp.up_proj.weight", {s.intermediate, s.hidden}, i + ", " + h, 0);
  list.add(ParamRole::kDown, "mlp.down_proj.weight", {s.hidden, s.intermediate}, h + ", " + i, 1);
}

void add_experts(const ModelSpec& s, List& list) {
  const int64_t e = s.moe.num_experts, i = s.moe.intermediate;
  list.add(ParamRole::kRouter, "mlp.gate.weight", {e, s.hidden}, "num_experts, hidden_size", -1);
  list.add(ParamRole::kExpertGateUp, "mlp.experts.gate_up_proj", {e, 2 * i, s.hidden},
           "num_experts, 2 * moe_intermediate_size, hidden_size", 1);
  list.out.back().tp_sections = 2;
  list.out.back().is_expert = true;
  list.add(ParamRole::kExpertDown, "mlp.experts.down_proj", {e, s.hidden, i},
           "num_experts, hidden_size, moe_intermediate_size", 2);
  list.out.back().is_expert = true;
}

}  // namespace

int64_t ParamSpec::num_elements() const { return keel::num_elements(shape); }

std::vector<ParamPiece> ParamSpec::pieces(ExpertLayout layout) const {
  if (!is_expert || layout == ExpertLayout::kFused) return {{name, shape, 0}};
  const int64_t experts = shape[0], rows = shape[1], columns = shape[2];
  const std::string base = name.substr(0, name.rfind('.') + 1);  // "...mlp.experts."
  std::vector<ParamPiece> out;
  for (int64_t e = 0; e < experts; ++e) {
    const std::string expert = base + std::to_string(e) + ".";
    const int64_t at = e * rows * columns;
    if (role == ParamRole::kExpertGateUp) {
      const int64_t half = rows / 2;
      out.push_back({expert + "gate_proj.weight", {half, columns}, at});
      out.push_back({expert + "up_proj.weight", {half, columns}, at + half * columns});
    } else {
      out.push_back({expert + "down_proj.weight", {rows, columns}, at});
    }
  }
  return out;
}

std::vector<ParamSpec> parameters(const ModelSpec& s) {
  List list;
  const std::string embedding = "vocab_size, hidden_size";
  list.add(ParamRole::kEmbedding, "model.embed_tokens.weight", {s.vocab, s.hidden}, embedding, 0);
  for (int64_t i = 0; i < s.layers; ++i) {
    list.layer = i;
    list.prefix = "model.layers." + std::to_string(i) + ".";
    list.add(ParamRole::kInputNorm, "input_layernorm.weight", {s.hidden}, "hidden_size", -1);
    add_attention(s, list);
    list.add(ParamRole::kPostAttentionNorm, "post_attention_layernorm.weight", {s.hidden},
             "hidden_size", -1);
    if (s.is_moe_layer(i)) {
      add_experts(s, list);
    } else {
      add_mlp(s, list);
    }
  }
  list.layer = -1;
  list.prefix.clear();
  list.add(ParamRole::kFinalNorm, "model.norm.weight", {s.hidden}, "hidden_size", -1);
  if (!s.tied) list.add(ParamRole::kHead, "lm_head.weight", {s.vocab, s.hidden}, embedding, 0);
  return std::move(list.out);
}

int64_t num_parameters(const ModelSpec& spec) {
  int64_t n = 0;
  for (const auto& p : parameters(spec)) n += p.num_elements();
  return n;
}

int64_t active_parameters(const ModelSpec& spec) {
  int64_t n = 0;
  for (const auto& p : parameters(spec)) {
    n += p.is_expert ? p.num_elements() / spec.moe.num_experts * spec.moe.top_k : p.num_elements();
  }
  return n;
}

int64_t kv_bytes_per_token(const ModelSpec& spec, DType kv_dtype) {
  return 2 * spec.layers * spec.kv_size() * dtype_bytes(kv_dtype);
}

double flops_per_token(const ModelSpec& spec, int64_t context) {
  double weights = 0;
  for (const auto& p : parameters(spec)) {
    const bool is_matrix = p.shape.size() >= 2;
    const bool looked_up = p.role == ParamRole::kEmbedding && !spec.tied;
    if (!is_matrix || looked_up) continue;
    const auto n = static_cast<double>(p.num_elements());
    weights += p.is_expert ? n * static_cast<double>(spec.moe.top_k) /
                                 static_cast<double>(spec.moe.num_experts)
                           : n;
  }
  const double attention =
      4.0 * static_cast<double>(spec.layers * spec.q_size()) * static_cast<double>(context);
  return 2 * weights + attention;
}

}  // namespace keel
