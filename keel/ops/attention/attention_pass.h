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
  std::atomic<int>* splits_done = nullptr;  // [row blocks][kv_heads]
  std::atomic<int>* groups_done = nullptr;  // [pool blocks][kv_heads]

  // Query vectors repacked as [kv_heads][rows of the sequences][heads of the group] (x head_dim):
  // every split reads them again, and rows of many heads lie far apart.
  const int64_t* first_row = nullptr;  // [sequences], rows of earlier sequences
  int64_t num_rows = 0;
  float* packed_q = nullptr;
  float* packed_dout = nullptr;
  float* packed_dq = nullptr;
  float* packed_lse = nullptr;
  float* packed_delta = nullptr;  // sum of out * dout over head_dim

  // Index of the first query vector of a row.
  int64_t vector_at(int kv_head, int sequence, int row) const {
    return (kv_head * num_rows + first_row[sequence] + row) *
           (shape.num_heads / shape.num_kv_heads);
  }
};

// Grows-only scratch of the calling thread, 64-byte aligned; contents are undefined.
float* attention_scratch(int64_t num_floats);

void check_attention_shape(const AttentionShape& shape);

inline int64_t round_up_16(int64_t n) { return (n + 15) / 16 * 16; }

}  // namespace keel::ops
