// Rotary position embedding (Su et al., 2021; half-split pairs as in Hugging Face models) with the
// optional per-head RMS norm of queries and keys that Qwen3 has. Works on the fused projection, one
// pass over it.
//
// qkv: [m, (heads + 2 * kv_heads) * head_dim], columns q | k | v.
#pragma once

#include <cstdint>
#include <vector>

namespace keel::ops {

// Cosines and sines of position * inv_freq, computed in f32 as the reference implementations do.
class RopeTable {
 public:
  RopeTable() = default;
  // inv_freq: [head_dim / 2]; entries of padding are 0.
  explicit RopeTable(std::vector<float> inv_freq) : inv_freq_(std::move(inv_freq)) {}

  // Makes positions [0, count) available. Not thread-safe; call before kernels run.
  void reserve(int64_t count);
  int64_t half_dim() const { return static_cast<int64_t>(inv_freq_.size()); }
  const float* cos(int64_t position) const { return cos_.data() + position * half_dim(); }
  const float* sin(int64_t position) const { return sin_.data() + position * half_dim(); }

 private:
  std::vector<float> inv_freq_;  // [head_dim / 2]
  std::vector<float> cos_, sin_;
};

struct RopeShape {
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;  // a multiple of 16
  int norm_dim = 0;  // what the norm divides by: head_dim without its zero padding
  float norm_eps = 0;
  bool round_bf16 = false;
};

// q_norm, k_norm: [head_dim], both null for models without query/key norms.
// q: [m, heads * head_dim], k: [m, kv_heads * head_dim]; contiguous.
void rope_forward(const RopeShape& shape, const RopeTable& table, const int32_t* positions,
                  const float* q_norm, const float* k_norm, const float* qkv, int64_t m, float* q,
                  float* k);

// dq, dk: gradients of the outputs; the q and k columns of dqkv are overwritten, v is left alone.
// dq_norm, dk_norm ([head_dim], may be null) are added to in an order that does not depend on
// threads.
void rope_backward(const RopeShape& shape, const RopeTable& table, const int32_t* positions,
                   const float* q_norm, const float* k_norm, const float* qkv, const float* dq,
                   const float* dk, int64_t m, float* dqkv, float* dq_norm, float* dk_norm);

}  // namespace keel::ops
