#include "keel/balance/rollout_lengths.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "keel/base/error.h"

namespace keel::balance {
namespace {

double density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }
double upper(double x) { return std::erfc(x / std::numbers::sqrt2) / 2; }

// Mean and second moment about the mean of a standard normal above x.
struct Tail {
  double mean, variance;
};
Tail above(double x) {
  if (x < -6) return {0, 1};
  if (x > 6) return {x + 1 / x, 1 / (x * x)};
  const double m = density(x) / upper(x);
  return {m, std::max(1e-3, 1 + x * m - m * m)};
}

constexpr double kPriorAnswers = 4;

}  // namespace

RolloutLengths::RolloutLengths(int32_t max_new_tokens)
    : cap_(max_new_tokens), log_cap_(std::log(cap_)), mean_(std::log(cap_ / 6)) {
  KEEL_REQUIRE(max_new_tokens > 0, "[balance.rollout] expected max_new_tokens > 0, got {}",
               max_new_tokens);
}

void RolloutLengths::fit(std::span<const RolloutProgress> answers, int32_t num_groups) {
  shift_.resize(num_groups, 0);
  shift_variance_.assign(num_groups, between_);
  std::vector<double> sum(num_groups), square(num_groups), extra(num_groups);
  std::vector<int32_t> count(num_groups);
  const double s = std::sqrt(within_);
  for (const auto& a : answers) {
    const double m = mean_ + shift_[a.group];
    double value = 0, variance = 0;
    const double log_generated = std::log(std::max(1, a.generated));
    if (a.done && log_generated < log_cap_) {
      value = log_generated;
    } else {  // unfinished, or cut: longer than this
      const auto tail = above((log_generated - m) / s);
      value = m + s * tail.mean;
      variance = within_ * tail.variance;
    }
    sum[a.group] += value;
    square[a.group] += value * value;
    extra[a.group] += variance;
    ++count[a.group];
  }
  double total = 0, shifts = 0, rest = 0, num = 0;
  int32_t groups = 0;
  for (int32_t g = 0; g < num_groups; ++g) {
    if (count[g] == 0) continue;
    const double n = count[g];
    const double keep = between_ / (between_ + within_ / n);
    shift_[g] = keep * (sum[g] / n - mean_);
    shift_variance_[g] = between_ * (1 - keep);
    total += sum[g] - n * shift_[g];
    shifts += shift_[g] * shift_[g] + shift_variance_[g];
    const double center = mean_ + shift_[g];
    rest +=
        square[g] - 2 * center * sum[g] + n * center * center + n * shift_variance_[g] + extra[g];
    num += n;
    ++groups;
  }
  if (groups == 0) return;
  const double prior = std::log(cap_ / 6);
  mean_ = (total + kPriorAnswers * prior) / (num + kPriorAnswers);
  between_ = std::clamp((shifts + kPriorAnswers * 0.5) / (groups + kPriorAnswers), 0.01, 2.0);
  within_ = std::clamp((rest + kPriorAnswers * 0.5) / (num + kPriorAnswers), 0.01, 2.0);
}

double RolloutLengths::remaining(int32_t group, int32_t generated) const {
  const double v = within_ + shift_variance_[group];
  const double s = std::sqrt(v);
  const double m = mean_ + shift_[group];
  const double a = (std::log(std::max(1, generated)) - m) / s;
  const double alive = upper(a);
  const double left = cap_ - generated;
  if (left <= 1) return 1;
  if (alive < 1e-9) return std::min(left, std::max(1.0, 0.2 * generated));
  const double c = (log_cap_ - m) / s;
  const double inside = std::exp(m + v / 2) * (upper(a - s) - upper(c - s));
  return std::clamp((inside + cap_ * upper(c)) / alive - generated, 1.0, left);
}

double RolloutLengths::exceeds(int32_t group, int32_t generated, double more) const {
  if (generated + more >= cap_) return 0;
  const double s = std::sqrt(within_ + shift_variance_[group]);
  const double m = mean_ + shift_[group];
  const double alive = upper((std::log(std::max(1, generated)) - m) / s);
  const double long_enough = upper((std::log(generated + std::max(more, 1.0)) - m) / s);
  return alive < 1e-9 ? 1 / (1 + 5 * more / std::max(1, generated)) : long_enough / alive;
}

}  // namespace keel::balance
