// The operators that models are written with: torch tensors in and out, differentiable, on packed
// parameters.
//
// Activations are f32 tensors [tokens, features], contiguous. With round_bf16 (bf16 models) they
// hold bf16 values and every op rounds its output; docs/numerics.md lists the points. Gradients are
// f32. Without grad mode an op is one kernel call. Not thread-safe: one thread drives a model,
// kernels use the pool.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "keel/ops/attention/attention_kernels.h"
#include "keel/ops/log_prob/log_prob_kernels.h"
#include "keel/ops/parameter.h"
#include "keel/ops/rope/rope_kernels.h"

namespace keel::ops {

// table: [vocab, hidden] -> [tokens, hidden]
at::Tensor embedding(Parameter& table, std::span<const int32_t> tokens);

// x: [T, n], weight: [n] -> [T, n]
at::Tensor rms_norm(const at::Tensor& x, Parameter& weight, double eps, bool round_bf16);

// x: [T, k], weight: [n, k], bias: [n] or null, residual: [T, n] or undefined -> [T, n]
at::Tensor linear(const at::Tensor& x, Parameter& weight, Parameter* bias,
                  const at::Tensor& residual, bool round_bf16);

// gate_up: [T, 2n] -> [T, n]
at::Tensor swiglu(const at::Tensor& gate_up, bool round_bf16);

// Which rows attend to what; shared by all layers of a forward pass and by its backward, so it is
// held by shared_ptr there. Spans point into the owner (a training layout or the engine's batch).
struct AttentionPlan {
  std::vector<int32_t> positions;  // [T]
  std::vector<KvSlot> slots;       // where each row's K and V go
  std::vector<AttentionSequence> sequences;
  std::vector<int32_t> block_ids;  // storage behind sequences[i].blocks
  int64_t num_blocks = 0;          // of a temporary pool, block 0 included (training)
};

struct AttentionLayer {
  AttentionShape shape;
  RopeShape rope;
  const RopeTable* table = nullptr;
  Parameter* q_norm = nullptr;  // [head_dim] or null
  Parameter* k_norm = nullptr;
};

// qkv: [T, (heads + 2 kv_heads) * head_dim] -> [T, heads * head_dim]: q/k norm, rotary embedding, K
// and V into the pool, causal attention. pool: the layer's paged cache; null = a temporary pool of
// plan->num_blocks (training). Backward needs a temporary pool and keeps only qkv, the output and
// the log-sum-exp.
at::Tensor attention(const at::Tensor& qkv, const AttentionLayer& layer,
                     const std::shared_ptr<const AttentionPlan>& plan, const KvPool* pool);

struct MoeLayer {
  Parameter* router = nullptr;   // [experts, hidden]
  Parameter* gate_up = nullptr;  // experts x [2 * intermediate, hidden]
  Parameter* down = nullptr;     // experts x [hidden, intermediate]
  int top_k = 1;
  bool norm_top_k = true;  // weights of the chosen experts sum to 1
};

// x: [T, hidden] (normalised), residual: [T, hidden] -> residual + mixture of experts.
// The router runs in f32, ties go to the lower expert id, a token's experts are summed in ascending
// id. expert_ids (may be null): receives [T * top_k] ids in that order.
at::Tensor moe(const at::Tensor& x, const MoeLayer& layer, const at::Tensor& residual,
               bool round_bf16, std::vector<int32_t>* expert_ids = nullptr);

// Log-probability and entropy of targets under softmax(x head^T / temperature); see
// log_prob_kernels.h. x: [T, k] -> two tensors [T] f32. entropy is differentiable only when
// entropy_grad.
struct LogProbs {
  at::Tensor log_prob;
  at::Tensor entropy;
};
struct LogProbTargets {
  std::vector<int32_t> targets;    // [T]
  std::vector<float> temperature;  // [T], > 0
  std::vector<int32_t> kept_ids;   // see KeptIds
  std::vector<int64_t> kept_offsets;
};
LogProbs linear_log_prob(const at::Tensor& x, Parameter& head, LogProbTargets targets);

// rows of x -> [rows.size(), n]; a row may be taken more than once (backward adds in order).
at::Tensor select_rows(const at::Tensor& x, std::vector<int64_t> rows);

}  // namespace keel::ops
