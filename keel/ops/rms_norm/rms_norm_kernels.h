// Root-mean-square normalisation (Zhang and Sennrich, 2019): y = w * x / sqrt(mean(x^2) + eps), row
// by row. In bf16 models the normalised value is rounded before it meets w, and the product again.
#pragma once

#include <cstdint>

namespace keel::ops {

// x, y: [m, n] with leading dimensions; w: [n]; n a multiple of 8.
// rstd: [m] reciprocal root of the mean square, for the backward pass; may be null.
void rms_norm_forward(const float* x, int64_t ldx, const float* w, int64_t m, int64_t n, float eps,
                      bool round_bf16, float* y, int64_t ldy, float* rstd);

// dx is overwritten; dw ([n], may be null) is added to, in an order that does not depend on
// threads.
void rms_norm_backward(const float* x, int64_t ldx, const float* w, const float* rstd,
                       const float* dy, int64_t lddy, int64_t m, int64_t n, float* dx, int64_t lddx,
                       float* dw);

}  // namespace keel::ops
