// Batch-invariant matrix products on packed weights. All pointers are host memory; all leading
// dimensions count elements. Activations are f32 in memory; in bf16 models they hold bf16 values
// (round_bf16 rounds outputs). Work is split over compute_pool() by outputs, never along a sum of a
// forward value.
#pragma once

#include <cstdint>
#include <span>

#include "keel/ops/packed.h"

namespace keel::ops {

struct LinearEpilogue {
  const float* bias = nullptr;  // [n], added in f32 before rounding
  const float* residual =
      nullptr;  // [m, n] rows; added after the product was rounded, then rounded again
  int64_t ld_residual = 0;
  bool round_bf16 = false;
};

// y[i, j] = sum_k x[i, k] * w[j, k] (+ bias, + residual).   x: [m, k], y: [m, n]
void linear_forward(const PackedView& w, const float* x, int64_t ldx, int64_t m, float* y,
                    int64_t ldy, const LinearEpilogue& epilogue = {});

// dx[i, k] (+)= sum_j dy[i, j] * w[j, k]; leaves over n, so rows are batch-invariant too.
void linear_grad_input(const PackedView& w, const float* dy, int64_t lddy, int64_t m, float* dx,
                       int64_t lddx, bool accumulate);

// dw (packed f32 layout of [n, k], not interleaved) += dy^T x. The order of the sum over rows is
// free but fixed for given shapes and does not depend on the number of threads.
void linear_grad_weight(const float* x, int64_t ldx, const float* dy, int64_t lddy, int64_t m,
                        int64_t n, int64_t k, float* dw);

// Expert form: rows [offsets[e], offsets[e+1]) of x and y belong to experts[e] (equal shapes).
// Each row's bits equal those of linear_forward on that expert alone.
void grouped_linear_forward(std::span<const PackedView> experts, std::span<const int64_t> offsets,
                            const float* x, int64_t ldx, float* y, int64_t ldy, bool round_bf16);
void grouped_linear_grad_input(std::span<const PackedView> experts,
                               std::span<const int64_t> offsets, const float* dy, int64_t lddy,
                               float* dx, int64_t lddx);
void grouped_linear_grad_weight(std::span<const int64_t> offsets, const float* x, int64_t ldx,
                                const float* dy, int64_t lddy, int64_t n, int64_t k,
                                std::span<float* const> dw);

}  // namespace keel::ops
