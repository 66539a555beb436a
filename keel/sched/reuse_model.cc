#include "keel/sched/reuse_model.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace keel::sched {
namespace {

// First age of a class in units; the inverse of age_class().
double first_age(int32_t a) {
  if (a < 8) return a;
  return std::ldexp(4 + a % 4, a / 4 - 1);
}

// Before anything is known: young and often used blocks come back sooner, as LRU assumes.
constexpr std::array<double, ReuseModel::kClasses> kPriorRate = {0.02, 0.06, 0.1, 0.15};
constexpr double kPriorCases = 2;
constexpr float kMemory = 0.95F;  // kept of the counts at each refresh

}  // namespace

ReuseModel::ReuseModel(int32_t capacity_blocks) : unit_(std::max(1, capacity_blocks / 32)) {
  refresh({});
}

int32_t ReuseModel::age_class(int64_t age) const {
  const auto units = static_cast<uint64_t>(std::max<int64_t>(0, age) / unit_);
  if (units < 8) return static_cast<int32_t>(units);
  const int32_t octave = 63 - std::countl_zero(units);
  return std::min(kAges - 1, 4 * (octave - 1) + static_cast<int32_t>(units >> (octave - 2) & 3));
}

void ReuseModel::refresh(const Census& unused) {
  for (int32_t c = 0; c < kClasses; ++c) {
    std::array<double, kAges> hazard, width;
    double at_risk = 0;
    for (int32_t a = kAges - 1; a >= 0; --a) {
      width[a] = first_age(a + 1) - first_age(a);
      at_risk += reused_[c][a] + unused[c][a];
      const double prior = 1 - std::exp(-kPriorRate[c] * width[a] / (1 + first_age(a) / 16));
      // Those now in this age class have not been through it: they count half.
      hazard[a] =
          (reused_[c][a] + prior * kPriorCases) / (at_risk - unused[c][a] / 2 + kPriorCases);
    }
    for (int32_t from = 0; from < kAges; ++from) {
      double alive = 1, hits = 0, time = 0, best = 0;
      for (int32_t a = from; a < kAges; ++a) {
        hits += alive * hazard[a];
        time += alive * width[a] * (1 - hazard[a] / 2);
        alive *= 1 - hazard[a];
        best = std::max(best, hits / time);
      }
      index_[c][from] = static_cast<float>(best / static_cast<double>(unit_));
    }
    for (auto& count : reused_[c]) count *= kMemory;
  }
}

}  // namespace keel::sched
