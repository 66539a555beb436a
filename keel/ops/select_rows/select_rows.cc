#include "keel/base/error.h"
#include "keel/ops/autograd.h"
#include "keel/ops/functions.h"

namespace keel::ops {
namespace {

struct SelectRowsBackward : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    const auto dy = grads[0].contiguous();
    const int64_t k = dy.size(1);
    auto dx = at::zeros({num_rows, k}, at::kFloat);
    const float* from = dy.const_data_ptr<float>();
    float* to = dx.data_ptr<float>();
    for (size_t i = 0; i < rows.size(); ++i) {  // in order: a row may be selected more than once
      for (int64_t j = 0; j < k; ++j) to[rows[i] * k + j] += from[static_cast<int64_t>(i) * k + j];
    }
    return {dx};
  }
  std::vector<int64_t> rows;
  int64_t num_rows = 0;
};

}  // namespace

at::Tensor select_rows(const at::Tensor& x, std::vector<int64_t> rows) {
  const int64_t k = x.size(1);
  auto y = new_f32({std::ssize(rows), k});
  float* to = y.data_ptr<float>();
  const float* from = x.const_data_ptr<float>();
  for (size_t i = 0; i < rows.size(); ++i) {
    KEEL_CHECK(rows[i] >= 0 && rows[i] < x.size(0), "row {} of {}", rows[i], x.size(0));
    std::copy_n(from + rows[i] * k, k, to + static_cast<int64_t>(i) * k);
  }
  if (recording() && x.requires_grad()) {
    auto node = c10::make_intrusive<SelectRowsBackward>();
    node->rows = std::move(rows);
    node->num_rows = x.size(0);
    record(y, node, x);
  }
  return y;
}

}  // namespace keel::ops
