#include "keel/train/optimizer.h"

#include <ATen/ops/zeros.h>

#include <cmath>

#include "keel/base/error.h"
#include "keel/ops/adamw/adamw_kernels.h"

namespace keel::train {

AdamW::AdamW(std::span<ops::Parameter* const> parameters, AdamWConfig config) : config_(config) {
  for (ops::Parameter* p : parameters) {
    KEEL_CHECK(p->trainable(), "{} has no gradient", p->name());
    slots_.push_back({p, at::zeros({p->num_elements()}, at::kFloat),
                      at::zeros({p->num_elements()}, at::kFloat)});
  }
}

UpdateResult AdamW::step(double lr_factor, double grad_scale) {
  double square = 0;
  for (Slot& s : slots_)
    square += ops::sum_of_squares(s.parameter->grad(), s.parameter->num_elements());
  UpdateResult result;
  result.grad_norm = std::sqrt(square) * std::abs(grad_scale);
  if (!std::isfinite(result.grad_norm)) {
    result.skipped = true;
    ++num_skipped_;
    zero_grad();
    return result;
  }
  double scale = grad_scale;
  if (config_.max_grad_norm > 0) {
    // The 1e-6 is torch.nn.utils.clip_grad_norm_'s.
    scale *= std::min(1.0, config_.max_grad_norm / (result.grad_norm + 1e-6));
  }
  ++num_updates_;
  ops::AdamWStep update;
  update.lr = static_cast<float>(config_.lr * lr_factor);
  update.beta1 = static_cast<float>(config_.beta1);
  update.beta2 = static_cast<float>(config_.beta2);
  update.eps = static_cast<float>(config_.eps);
  update.grad_scale = static_cast<float>(scale);
  update.step = num_updates_;
  for (Slot& s : slots_) {
    update.weight_decay =
        s.parameter->is_matrix() ? static_cast<float>(config_.weight_decay) : 0.0f;
    ops::adamw_step(update, s.parameter->num_elements(), s.parameter->master().data_ptr<float>(),
                    s.parameter->grad(), s.m.data_ptr<float>(), s.v.data_ptr<float>(), true);
  }
  return result;
}

void AdamW::zero_grad() {
  for (Slot& s : slots_) s.parameter->grad_tensor().zero_();
}

void AdamW::reset(const AdamWConfig& config) {
  config_ = config;
  for (Slot& s : slots_) {
    s.m.zero_();
    s.v.zero_();
  }
  set_counters(0, 0);
}

void AdamW::set_counters(int64_t num_updates, int64_t num_skipped) {
  num_updates_ = num_updates;
  num_skipped_ = num_skipped;
}

}  // namespace keel::train
