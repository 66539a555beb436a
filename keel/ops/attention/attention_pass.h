// Arguments of one forward or backward pass, shared by the per-target kernels and their dispatch.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "keel/ops/attention/attention_plan.h"

namespace keel::ops {

struct ForwardPass {
  AttentionShape shape;
  const float* q = nullptr;
  int64_t ldq = 0;
  KvPool pool;
  std::span<const AttentionSequence> sequences;
  float* out = nullptr;
  int64_t ldo = 0;
  float* lse = nullptr;
  const ForwardPlan* plan = nullptr;
  float* workspace = nullptr;
  std::atomic<int>* parts_left = nullptr;  // one for each merge
};

struct BackwardPass {
  AttentionShape shape;
  const float* q = nullptr;
  int64_t ldq = 0;
  KvPool pool;
  std::span<const AttentionSequence> sequences;
  const float* out = nullptr;
  int64_t ldo = 0;
  const float* lse = nullptr;
  const float* dout = nullptr;
  int64_t lddo = 0;
  float* dq = nullptr;
  int64_t lddq = 0;
  float* dk_pool = nullptr;
  float* dv_pool = nullptr;
  const BackwardPlan* plan = nullptr;
  float* delta = nullptr;                   // [rows of the sequences, num_heads]
  const int64_t* first_delta = nullptr;     // [sequences], rows of earlier sequences
  std::atomic<int>* splits_done = nullptr;  // [row blocks][kv_heads]
  std::atomic<int>* groups_done = nullptr;  // [pool blocks][kv_heads]
};

// Grows-only scratch of the calling thread, 64-byte aligned; contents are undefined.
float* attention_scratch(int64_t num_floats);

void check_attention_shape(const AttentionShape& shape);

inline int64_t round_up_16(int64_t n) { return (n + 15) / 16 * 16; }

}  // namespace keel::ops
