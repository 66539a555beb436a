// Scalar f64 references of the matrix products, for tests.
#pragma once

#include <cstdint>
#include <vector>

#include "keel/ops/packed.h"

namespace keel::ops {

// All row-major and dense.  w: [n, k].
std::vector<double> linear_ref(const std::vector<double>& x, const std::vector<double>& w,
                               int64_t m, int64_t n, int64_t k);  // [m, n] = x w^T
std::vector<double> linear_grad_input_ref(const std::vector<double>& dy,
                                          const std::vector<double>& w, int64_t m, int64_t n,
                                          int64_t k);  // [m, k] = dy w
std::vector<double> linear_grad_weight_ref(const std::vector<double>& x,
                                           const std::vector<double>& dy, int64_t m, int64_t n,
                                           int64_t k);  // [n, k] = dy^T x

// The exact order of linear_forward in scalar f32: leaves in k order with fused multiply-add, then
// the binary tree. Kernels with fused multiply-add must give these very bits.
float linear_dot_f32(const float* x, const float* w_row, int64_t k, int num_leaves);

}  // namespace keel::ops
