// Scalar f64 attention, for tests: the definition, without splits, tiles or threads. Same contract
// as attention_kernels.h for f32 pools; in bf16 mode P is rounded relative to the row's maximum
// over its split, as the kernels do.
#pragma once

#include <cstdint>
#include <span>

#include "keel/ops/attention/attention_kernels.h"

namespace keel::ops {

// out: [rows, num_heads * head_dim], lse: [rows, num_heads]; dense leading dimensions.
void attention_forward_ref(const AttentionShape& shape, const double* q, const double* k_pool,
                           const double* v_pool, std::span<const AttentionSequence> sequences,
                           double* out, double* lse);

// dq like q; dk_pool and dv_pool [blocks][kv_heads][16][head_dim] are added to. P is not rounded
// here: gradients pass through roundings.
void attention_backward_ref(const AttentionShape& shape, const double* q, const double* k_pool,
                            const double* v_pool, std::span<const AttentionSequence> sequences,
                            const double* dout, double* dq, double* dk_pool, double* dv_pool);

}  // namespace keel::ops
