// AdamW (Loshchilov and Hutter, 2019) in one pass over memory, elementwise, so any layout will do.
#pragma once

#include <cstdint>

namespace keel::ops {

struct AdamWStep {
  float lr = 0;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float eps = 1e-8f;
  float weight_decay = 0;
  float grad_scale = 1;  // the gradient is multiplied by this first (clipping, averaging)
  int64_t step = 1;      // 1 for the first update; bias correction
};

// p, m, v: [n] are updated. g: [n] is read, then set to zero when clear_grad.
void adamw_step(const AdamWStep& s, int64_t n, float* p, float* g, float* m, float* v,
                bool clear_grad);

// Sum of squares in f64 over fixed blocks, added in order: does not depend on threads.
double sum_of_squares(const float* x, int64_t n);

}  // namespace keel::ops
