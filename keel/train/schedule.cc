#include "keel/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "keel/base/error.h"

namespace keel::train {
namespace {

double cosine(double progress, double min_ratio) {
  const double c = 0.5 * (1 + std::cos(std::numbers::pi * std::clamp(progress, 0.0, 1.0)));
  return min_ratio + (1 - min_ratio) * c;
}

}  // namespace

double lr_factor(const ScheduleConfig& c, int64_t step) {
  if (step < c.warmup_steps) return static_cast<double>(step) / static_cast<double>(c.warmup_steps);
  if (c.schedule == Schedule::kConstant) return 1;
  KEEL_REQUIRE(c.total_steps > 0, "[optim.schedule] expected total_steps > 0, got {}",
               c.total_steps);
  const auto after = static_cast<double>(step - c.warmup_steps);
  const auto span = static_cast<double>(std::max<int64_t>(1, c.total_steps - c.warmup_steps));
  switch (c.schedule) {
    case Schedule::kConstant:
      return 1;
    case Schedule::kLinear:
      return std::max(0.0, 1 - after / span);
    case Schedule::kCosine:
      return cosine(after / span, c.min_ratio);
    case Schedule::kPolynomial: {
      const double left = std::max(0.0, 1 - after / span);
      return c.min_ratio + (1 - c.min_ratio) * left * left;
    }
    case Schedule::kWsd: {
      const auto decay = static_cast<double>(std::max<int64_t>(1, c.decay_steps));
      const double stable = span - decay;
      return after < stable ? 1 : cosine((after - stable) / decay, c.min_ratio);
    }
  }
  return 1;
}

}  // namespace keel::train
