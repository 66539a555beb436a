// Learning-rate schedules, as pure functions of the step. Formulas as in transformers' optimization
// module.
#pragma once

#include <cstdint>

namespace keel::train {

enum class Schedule {
  kConstant,
  kLinear,      // to zero at total_steps
  kCosine,      // half a cosine to min_ratio * lr
  kPolynomial,  // power 2 to min_ratio * lr
  kWsd,         // warm-up, stable, then half a cosine to min_ratio * lr over decay_steps
};

struct ScheduleConfig {
  Schedule schedule = Schedule::kConstant;
  int64_t warmup_steps = 0;  // linear from 0
  int64_t total_steps = 0;   // > 0 unless constant
  int64_t decay_steps = 0;   // kWsd
  double min_ratio = 0;      // final lr / peak lr
};

// Multiplier of the peak learning rate for the update number `step` (0 is the first).
double lr_factor(const ScheduleConfig& config, int64_t step);

}  // namespace keel::train
