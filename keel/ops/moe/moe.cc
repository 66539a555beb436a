#include <algorithm>
#include <bit>

#include "keel/base/error.h"
#include "keel/base/thread_pool.h"
#include "keel/ops/autograd.h"
#include "keel/ops/functions.h"
#include "keel/ops/linear/linear_kernels.h"
#include "keel/ops/moe/routing.h"
#include "keel/ops/packed.h"
#include "keel/ops/swiglu/swiglu_kernels.h"

namespace keel::ops {
namespace {

constexpr int64_t kRows = 16;  // rows per task

std::vector<PackedView> views(const Parameter& experts) {
  std::vector<PackedView> out;
  for (int64_t e = 0; e < experts.count(); ++e) out.push_back(experts.view(e));
  return out;
}

std::vector<float*> grads(Parameter& experts) {
  std::vector<float*> out;
  for (int64_t e = 0; e < experts.count(); ++e) out.push_back(experts.grad(e));
  return out;
}

template <class F>
void for_rows(int64_t m, F&& body) {
  compute_pool().parallel_for((m + kRows - 1) / kRows, [&](int64_t c, int) {
    for (int64_t r = c * kRows; r < std::min(m, (c + 1) * kRows); ++r) body(r);
  });
}

// sorted[i] = x[token_of[i]], scaled if `scale` is given.
at::Tensor gather_rows(const at::Tensor& x, const Routing& routing, const float* scale) {
  const int64_t k = x.size(1), rows = std::ssize(routing.token_of);
  auto out = new_f32({rows, k});
  const float* from = x.const_data_ptr<float>();
  float* to = out.data_ptr<float>();
  for_rows(rows, [&](int64_t r) {
    const float* in = from + routing.token_of[static_cast<size_t>(r)] * k;
    for (int64_t j = 0; j < k; ++j) to[r * k + j] = scale != nullptr ? scale[r] * in[j] : in[j];
  });
  return out;
}

// out[t] = residual[t] + sum over the token's experts, ascending id, of weight * y.
void combine(const Routing& routing, const at::Tensor& y, const at::Tensor& residual, bool round,
             float* out) {
  const int64_t n = y.size(1);
  const float* ys = y.const_data_ptr<float>();
  const float* base = residual.const_data_ptr<float>();
  for_rows(routing.tokens, [&](int64_t t) {
    float* to = out + t * n;
    std::fill_n(to, n, 0.0f);
    for (int i = 0; i < routing.top_k; ++i) {
      const auto at = static_cast<size_t>(t * routing.top_k + i);
      const float w = routing.weight[at];
      const float* row = ys + routing.sorted_row[at] * n;
      for (int64_t j = 0; j < n; ++j) to[j] += round ? round_to_bf16(w * row[j]) : w * row[j];
    }
    for (int64_t j = 0; j < n; ++j) {
      to[j] =
          round ? round_to_bf16(base[t * n + j] + round_to_bf16(to[j])) : base[t * n + j] + to[j];
    }
  });
}

struct MoeBackward : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads_in) override;
  void release_variables() override {
    x.reset();
    gate_up.reset();
  }
  at::Tensor x, gate_up;  // [T, hidden], [T * top_k, 2 * intermediate] in sorted order
  Routing routing;
  MoeLayer layer;
};

torch::autograd::variable_list MoeBackward::apply(torch::autograd::variable_list&& grads_in) {
  const auto dout = grads_in[0].contiguous();
  const int64_t rows = gate_up.size(0), inner = gate_up.size(1) / 2, hidden = x.size(1);
  const int experts = static_cast<int>(layer.router->n());
  std::vector<float> weight(static_cast<size_t>(rows)), d_weight(routing.weight.size());
  for (size_t i = 0; i < routing.weight.size(); ++i) {
    weight[static_cast<size_t>(routing.sorted_row[i])] = routing.weight[i];
  }
  auto act = new_f32({rows, inner}), d_act = new_f32({rows, inner});
  swiglu_forward(gate_up.const_data_ptr<float>(), rows, inner, false, act.data_ptr<float>());
  {
    // d_act before weighting gives the weight's gradient as <d_act, act>; no expert output is kept
    // (the trick is SonicMoE's, arXiv 2512.14080).
    const auto dy = gather_rows(dout, routing, nullptr);
    grouped_linear_grad_input(views(*layer.down), routing.offsets, dy.const_data_ptr<float>(),
                              hidden, d_act.data_ptr<float>(), inner);
  }
  float* da = d_act.data_ptr<float>();
  const float* a = act.const_data_ptr<float>();
  std::vector<float> dot(static_cast<size_t>(rows));
  for_rows(rows, [&](int64_t r) {
    float sum = 0;
    for (int64_t j = 0; j < inner; ++j) {
      sum += da[r * inner + j] * a[r * inner + j];
      da[r * inner + j] *= weight[static_cast<size_t>(r)];
    }
    dot[static_cast<size_t>(r)] = sum;
  });
  for (size_t i = 0; i < d_weight.size(); ++i)
    d_weight[i] = dot[static_cast<size_t>(routing.sorted_row[i])];
  if (layer.down->trainable()) {
    const auto dy = gather_rows(dout, routing, weight.data());
    grouped_linear_grad_weight(routing.offsets, a, inner, dy.const_data_ptr<float>(), hidden,
                               hidden, inner, grads(*layer.down));
  }
  auto d_gate_up = new_f32(gate_up.sizes());
  swiglu_backward(gate_up.const_data_ptr<float>(), da, rows, inner, d_gate_up.data_ptr<float>());
  if (layer.gate_up->trainable()) {
    const auto sorted = gather_rows(x, routing, nullptr);
    grouped_linear_grad_weight(routing.offsets, sorted.const_data_ptr<float>(), hidden,
                               d_gate_up.const_data_ptr<float>(), 2 * inner, 2 * inner, hidden,
                               grads(*layer.gate_up));
  }
  auto d_sorted = new_f32({rows, hidden});
  grouped_linear_grad_input(views(*layer.gate_up), routing.offsets,
                            d_gate_up.const_data_ptr<float>(), 2 * inner,
                            d_sorted.data_ptr<float>(), hidden);
  const auto d_logits = route_backward(routing, d_weight, experts, layer.norm_top_k);
  auto dx = new_f32(x.sizes());
  linear_grad_input(layer.router->view(), d_logits.data(), experts, x.size(0), dx.data_ptr<float>(),
                    hidden, false);
  if (layer.router->trainable()) {
    linear_grad_weight(x.const_data_ptr<float>(), hidden, d_logits.data(), experts, x.size(0),
                       experts, hidden, layer.router->grad());
  }
  const float* ds = d_sorted.const_data_ptr<float>();
  float* to = dx.data_ptr<float>();
  for_rows(routing.tokens, [&](int64_t t) {
    for (int i = 0; i < routing.top_k; ++i) {
      const float* row =
          ds + routing.sorted_row[static_cast<size_t>(t * routing.top_k + i)] * hidden;
      for (int64_t j = 0; j < hidden; ++j) to[t * hidden + j] += row[j];
    }
  });
  return {dx, dout};
}

}  // namespace

at::Tensor moe(const at::Tensor& x, const MoeLayer& layer, const at::Tensor& residual,
               bool round_bf16, std::vector<int32_t>* expert_ids) {
  const int64_t m = x.size(0), hidden = x.size(1);
  const auto experts = static_cast<int>(layer.router->n());
  const int64_t inner = layer.down->k();
  std::vector<float> logits(static_cast<size_t>(m * experts));
  linear_forward(layer.router->view(), x.const_data_ptr<float>(), hidden, m, logits.data(),
                 experts);
  Routing routing = route(logits, m, experts, layer.top_k, layer.norm_top_k, round_bf16);
  if (expert_ids != nullptr) *expert_ids = routing.expert;
  const int64_t rows = m * layer.top_k;
  const auto sorted = gather_rows(x, routing, nullptr);
  auto gate_up = new_f32({rows, 2 * inner});
  grouped_linear_forward(views(*layer.gate_up), routing.offsets, sorted.const_data_ptr<float>(),
                         hidden, gate_up.data_ptr<float>(), 2 * inner, round_bf16);
  auto act = new_f32({rows, inner}), y = new_f32({rows, hidden}), out = new_f32({m, hidden});
  swiglu_forward(gate_up.const_data_ptr<float>(), rows, inner, round_bf16, act.data_ptr<float>());
  grouped_linear_forward(views(*layer.down), routing.offsets, act.const_data_ptr<float>(), inner,
                         y.data_ptr<float>(), hidden, round_bf16);
  combine(routing, y, residual, round_bf16, out.data_ptr<float>());
  if (recording() && x.requires_grad()) {
    auto node = c10::make_intrusive<MoeBackward>();
    node->x = x.detach();
    node->gate_up = gate_up;
    node->routing = std::move(routing);
    node->layer = layer;
    record(out, node, x, residual);
  }
  return out;
}

}  // namespace keel::ops
