// What a Hugging Face config.json says about a model, checked. Old keys (rope_theta, rope_scaling,
// torch_dtype, num_experts) and those of transformers 5 (rope_parameters, dtype,
// num_local_experts) give the same ModelSpec. What Keel cannot compute is refused, never ignored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "keel/base/json.h"
#include "keel/io/dtype.h"
#include "keel/spec/finding.h"

namespace keel {

enum class Family { kLlama, kQwen2, kQwen3, kQwen3Moe };

// "llama", "qwen2", "qwen3", "qwen3_moe": model_type in config.json.
std::string_view family_name(Family family);
std::optional<Family> family_from_name(std::string_view name);

struct RopeSpec {
  enum class Type { kDefault, kLlama3 };
  Type type = Type::kDefault;
  double theta = 10000;
  // Only for kLlama3.
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_position_embeddings = 0;
};

struct MoeSpec {
  int64_t num_experts = 0;  // 0: every layer is dense
  int64_t top_k = 0;
  int64_t intermediate = 0;       // of one expert
  bool norm_topk_prob = false;    // expert weights of a token sum to 1
  int64_t sparse_step = 1;        // every n-th layer may have experts
  std::vector<int64_t> mlp_only;  // layers that are dense all the same
  double aux_loss_coef = 0;       // router_aux_loss_coef
};

struct ModelSpec {
  Family family = Family::kLlama;
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;      // divides heads
  int64_t head_dim = 0;      // even; heads * head_dim may differ from hidden
  int64_t intermediate = 0;  // of a dense MLP
  int64_t vocab = 0;         // rows of the embedding; the tokenizer may have fewer
  int64_t max_positions = 0;
  double rms_eps = 1e-6;
  bool tied = false;      // lm_head is the embedding
  bool qkv_bias = false;  // q, k and v projections have a bias (qwen2)
  bool qk_norm = false;   // RMS norm on each head of q and k (qwen3)
  RopeSpec rope;
  MoeSpec moe;
  DType dtype = DType::kF32;  // that the weights were saved in: kF32, kBF16 or kF16
  std::optional<int64_t> bos_id;
  std::optional<int64_t> pad_id;
  std::vector<int64_t> eos_ids;  // generation stops at any of them

  int64_t q_size() const { return heads * head_dim; }
  int64_t kv_size() const { return kv_heads * head_dim; }
  bool is_moe_layer(int64_t layer) const;
  bool has_moe_layers() const;
};

// Reads config.json. Findings (file "config.json") are appended; the result is usable only if none
// of them is an error. Kinds: missing_field, wrong_type, bad_value, unsupported_model,
// unsupported_value.
ModelSpec parse_model_spec(const Json& config, std::vector<Finding>& findings);

// Takes bos, eos and pad ids from generation_config.json where it has them.
void apply_generation_config(const Json& generation, ModelSpec& spec,
                             std::vector<Finding>& findings);

// The same from one document; throws FileError with the first finding.
ModelSpec model_spec_from_json(const Json& config);

// config.json of this model with keys that transformers 4 and 5 both read.
OrderedJson config_json(const ModelSpec& spec);
OrderedJson generation_config_json(const ModelSpec& spec);

// Rotary frequencies, head_dim / 2 of them, in float32 as transformers computes them (llama3
// scaling after `_compute_llama3_parameters`).
std::vector<float> inv_freq(const ModelSpec& spec);

}  // namespace keel
