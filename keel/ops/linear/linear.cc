#include "keel/base/error.h"
#include "keel/ops/autograd.h"
#include "keel/ops/functions.h"
#include "keel/ops/linear/linear_kernels.h"

namespace keel::ops {
namespace {

// db += column sums of dy, row after row.
void add_column_sums(const at::Tensor& dy, float* db) {
  const float* g = dy.const_data_ptr<float>();
  const int64_t n = dy.size(1);
  for (int64_t r = 0; r < dy.size(0); ++r) {
    for (int64_t j = 0; j < n; ++j) db[j] += g[r * n + j];
  }
}

struct LinearBackward : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    const auto dy = grads[0].contiguous();
    const int64_t m = dy.size(0), n = weight->n(), k = weight->k();
    at::Tensor dx;
    if (task_should_compute_output(0)) {
      dx = new_f32({m, k});
      linear_grad_input(weight->view(), dy.const_data_ptr<float>(), n, m, dx.data_ptr<float>(), k,
                        false);
    }
    if (weight->trainable()) {
      linear_grad_weight(x.const_data_ptr<float>(), k, dy.const_data_ptr<float>(), n, m, n, k,
                         weight->grad());
    }
    if (bias != nullptr && bias->trainable()) add_column_sums(dy, bias->grad());
    return has_residual ? torch::autograd::variable_list{dx, dy}
                        : torch::autograd::variable_list{dx};
  }
  void release_variables() override { x.reset(); }
  at::Tensor x;
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;
  bool has_residual = false;
};

}  // namespace

at::Tensor linear(const at::Tensor& x, Parameter& weight, Parameter* bias,
                  const at::Tensor& residual, bool round_bf16) {
  const int64_t m = x.size(0), n = weight.n(), k = weight.k();
  KEEL_CHECK(x.size(1) == k, "{}: {} columns, weight has {}", weight.name(), x.size(1), k);
  auto y = new_f32({m, n});
  LinearEpilogue epilogue;
  epilogue.bias = bias != nullptr ? bias->vector() : nullptr;
  epilogue.round_bf16 = round_bf16;
  if (residual.defined()) {
    epilogue.residual = residual.const_data_ptr<float>();
    epilogue.ld_residual = n;
  }
  linear_forward(weight.view(), x.const_data_ptr<float>(), k, m, y.data_ptr<float>(), n, epilogue);
  if (recording() && x.requires_grad()) {
    auto node = c10::make_intrusive<LinearBackward>();
    node->x = x.detach();
    node->weight = &weight;
    node->bias = bias;
    node->has_residual = residual.defined();
    if (residual.defined()) {
      record(y, node, x, residual);
    } else {
      record(y, node, x);
    }
  }
  return y;
}

}  // namespace keel::ops
