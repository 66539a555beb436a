// The parameters of a model: names, shapes, roles, how they are stored in Hugging Face files, how
// they are split over devices, and what they cost.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "keel/spec/model_spec.h"

namespace keel {

enum class ParamRole {
  kEmbedding,
  kInputNorm,
  kQ,
  kQBias,
  kK,
  kKBias,
  kV,
  kVBias,
  kQNorm,
  kKNorm,
  kO,
  kPostAttentionNorm,
  kGate,
  kUp,
  kDown,
  kRouter,
  kExpertGateUp,
  kExpertDown,
  kFinalNorm,
  kHead,
};

// How the experts of a layer lie in a file. Qwen's own releases and save_pretrained: kPerExpert.
enum class ExpertLayout { kPerExpert, kFused };

// A stored tensor that fills elements [offset, offset + product of shape) of a parameter.
struct ParamPiece {
  std::string name;
  std::vector<int64_t> shape;
  int64_t offset = 0;
};

// One logical parameter. Matrices are [out, in] as in Hugging Face files.
struct ParamSpec {
  // As in transformers' memory: "model.layers.0.self_attn.q_proj.weight"; experts are fused:
  // "model.layers.1.mlp.experts.gate_up_proj" [E, 2I, H] (each expert: I gate rows, then I up
  // rows) and "...down_proj" [E, H, I].
  std::string name;
  ParamRole role = ParamRole::kEmbedding;
  int64_t layer = -1;  // -1: not in a layer
  std::vector<int64_t> shape;
  std::string origin;  // the fields behind the shape: "num_key_value_heads * head_dim, hidden_size"

  // Tensor parallel: dim that is cut (-1: replicated), and in how many equal sections of that dim
  // each rank takes its share (2 for gate_up, else 1). Expert parallel: dim 0 of expert parameters.
  int tp_dim = -1;
  int tp_sections = 1;
  bool is_expert = false;

  int64_t num_elements() const;
  // The stored tensors in order of their offset; one piece of the same name unless per expert.
  std::vector<ParamPiece> pieces(ExpertLayout layout) const;
};

// In the order of the forward pass. A tied head is not listed: it is the embedding.
std::vector<ParamSpec> parameters(const ModelSpec& spec);

// All parameters, and those that one token uses (top_k experts).
int64_t num_parameters(const ModelSpec& spec);
int64_t active_parameters(const ModelSpec& spec);

// Keys and values of one token over all layers.
int64_t kv_bytes_per_token(const ModelSpec& spec, DType kv_dtype);

// Forward pass of one token that attends to `context` tokens, head included: 2 per multiply-add of
// a weight used, 4 * heads * head_dim * context per layer. Backward is twice this.
double flops_per_token(const ModelSpec& spec, int64_t context);

}  // namespace keel
