#include "keel/ops/linear/linear_ref.h"

#include <cmath>

namespace keel::ops {

std::vector<double> linear_ref(const std::vector<double>& x, const std::vector<double>& w,
                               int64_t m, int64_t n, int64_t k) {
  std::vector<double> y(m * n);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t c = 0; c < k; ++c) y[i * n + j] += x[i * k + c] * w[j * k + c];
  return y;
}

std::vector<double> linear_grad_input_ref(const std::vector<double>& dy,
                                          const std::vector<double>& w, int64_t m, int64_t n,
                                          int64_t k) {
  std::vector<double> dx(m * k);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t c = 0; c < k; ++c) dx[i * k + c] += dy[i * n + j] * w[j * k + c];
  return dx;
}

std::vector<double> linear_grad_weight_ref(const std::vector<double>& x,
                                           const std::vector<double>& dy, int64_t m, int64_t n,
                                           int64_t k) {
  std::vector<double> dw(n * k);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t c = 0; c < k; ++c) dw[j * k + c] += dy[i * n + j] * x[i * k + c];
  return dw;
}

float linear_dot_f32(const float* x, const float* w_row, int64_t k, int num_leaves) {
  std::vector<float> sums(num_leaves);
  for (int leaf = 0; leaf < num_leaves; ++leaf)
    for (int64_t c = leaf_begin(k, num_leaves, leaf); c < leaf_begin(k, num_leaves, leaf + 1); ++c)
      sums[leaf] = std::fma(x[c], w_row[c], sums[leaf]);
  for (int width = 1; width < num_leaves; width *= 2)
    for (int leaf = 0; leaf < num_leaves; leaf += 2 * width) sums[leaf] += sums[leaf + width];
  return sums[0];
}

}  // namespace keel::ops
