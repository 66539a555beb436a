#include "keel/base/error.h"
#include "keel/ops/autograd.h"
#include "keel/ops/functions.h"
#include "keel/ops/swiglu/swiglu_kernels.h"

namespace keel::ops {
namespace {

struct SwigluBackward : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    const auto dy = grads[0].contiguous();
    auto dx = new_f32(gate_up.sizes());
    swiglu_backward(gate_up.const_data_ptr<float>(), dy.const_data_ptr<float>(), dy.size(0),
                    dy.size(1), dx.data_ptr<float>());
    return {dx};
  }
  void release_variables() override { gate_up.reset(); }
  at::Tensor gate_up;
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate_up, bool round_bf16) {
  const int64_t m = gate_up.size(0), n = gate_up.size(1) / 2;
  KEEL_CHECK(n % 8 == 0, "{} columns", n);
  auto y = new_f32({m, n});
  swiglu_forward(gate_up.const_data_ptr<float>(), m, n, round_bf16, y.data_ptr<float>());
  if (recording() && gate_up.requires_grad()) {
    auto node = c10::make_intrusive<SwigluBackward>();
    node->gate_up = gate_up.detach();
    record(y, node, gate_up);
  }
  return y;
}

}  // namespace keel::ops
