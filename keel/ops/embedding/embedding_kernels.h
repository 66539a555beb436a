// Token embedding read straight from packed storage, so that a tied head needs no second copy.
#pragma once

#include <cstdint>

#include "keel/ops/packed.h"

namespace keel::ops {

// x[i, :] = table[tokens[i], :].  table: [vocab, k]; x: [m, k] contiguous. Ids must be in [0,
// vocab).
void embedding_forward(const PackedView& table, const int32_t* tokens, int64_t m, float* x);

// dw (packed f32 layout) += the rows of dx, in row order whatever the number of threads.
void embedding_backward(const int32_t* tokens, const float* dx, int64_t m, int64_t k, float* dw);

}  // namespace keel::ops
