#include "keel/ops/rms_norm/rms_norm_kernels.h"

#include "keel/base/error.h"
#include "keel/ops/autograd.h"
#include "keel/ops/functions.h"

namespace keel::ops {
namespace {

struct RmsNormBackward : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    const auto dy = grads[0].contiguous();
    auto dx = new_f32(x.sizes());
    rms_norm_backward(x.const_data_ptr<float>(), x.size(1), weight->vector(),
                      rstd.const_data_ptr<float>(), dy.const_data_ptr<float>(), x.size(1),
                      x.size(0), x.size(1), dx.data_ptr<float>(), x.size(1), weight->grad());
    return {dx};
  }
  void release_variables() override {
    x.reset();
    rstd.reset();
  }
  at::Tensor x, rstd;
  Parameter* weight = nullptr;
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, Parameter& weight, double eps, bool round_bf16) {
  const int64_t m = x.size(0), n = x.size(1);
  KEEL_CHECK(n == weight.n() && n % 8 == 0, "{}: {} columns", weight.name(), n);
  auto y = new_f32({m, n});
  const bool grad = recording() && x.requires_grad();
  auto rstd = grad ? new_f32({m}) : at::Tensor();
  rms_norm_forward(x.const_data_ptr<float>(), n, weight.vector(), m, n, static_cast<float>(eps),
                   round_bf16, y.data_ptr<float>(), n, grad ? rstd.data_ptr<float>() : nullptr);
  if (grad) {
    auto node = c10::make_intrusive<RmsNormBackward>();
    node->x = x.detach();
    node->rstd = rstd;
    node->weight = &weight;
    record(y, node, x);
  }
  return y;
}

}  // namespace keel::ops
