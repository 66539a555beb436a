#include "keel/base/error.h"
#include "keel/ops/autograd.h"
#include "keel/ops/functions.h"
#include "keel/ops/log_prob/log_prob_kernels.h"

namespace keel::ops {
namespace {

KeptIds kept_of(const LogProbTargets& t) { return {t.kept_ids, t.kept_offsets}; }

struct LogProbBackward : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    const int64_t m = x.size(0), k = x.size(1);
    auto dx = at::zeros({m, k}, at::kFloat);
    const auto d_log_prob = grads[0].defined() ? grads[0].contiguous() : at::zeros({m}, at::kFloat);
    const auto d_entropy = grads[1].defined() ? grads[1].contiguous() : at::Tensor();
    linear_log_prob_backward(head->view(), x.const_data_ptr<float>(), k, m, targets.targets.data(),
                             targets.temperature.data(), kept_of(targets),
                             lse.const_data_ptr<float>(), entropy.const_data_ptr<float>(),
                             d_log_prob.const_data_ptr<float>(),
                             d_entropy.defined() ? d_entropy.const_data_ptr<float>() : nullptr,
                             dx.data_ptr<float>(), k, head->grad());
    return {dx};
  }
  void release_variables() override {
    x.reset();
    lse.reset();
    entropy.reset();
  }
  LogProbTargets targets;
  Parameter* head = nullptr;
  at::Tensor x, lse, entropy;
};

}  // namespace

LogProbs linear_log_prob(const at::Tensor& x, Parameter& head, LogProbTargets targets) {
  const int64_t m = x.size(0), k = x.size(1);
  KEEL_CHECK(std::ssize(targets.targets) == m && std::ssize(targets.temperature) == m, "{} rows",
             m);
  for (const int32_t t : targets.targets) {
    KEEL_REQUIRE(t >= 0 && t < head.n(), "[log_prob] expected target ids in [0, {}), got {}",
                 head.n(), t);
  }
  LogProbs out{new_f32({m}), new_f32({m})};
  auto lse = new_f32({m});
  linear_log_prob_forward(head.view(), x.const_data_ptr<float>(), k, m, targets.targets.data(),
                          targets.temperature.data(), kept_of(targets),
                          out.log_prob.data_ptr<float>(), out.entropy.data_ptr<float>(),
                          lse.data_ptr<float>());
  if (recording() && x.requires_grad()) {
    auto node = c10::make_intrusive<LogProbBackward>();
    node->targets = std::move(targets);
    node->head = &head;
    node->x = x.detach();
    node->lse = lse;
    node->entropy = out.entropy.detach();
    node->set_next_edges(torch::autograd::collect_next_edges(x));
    torch::autograd::set_history(out.log_prob, node);
    torch::autograd::set_history(out.entropy, node);
  }
  return out;
}

}  // namespace keel::ops
