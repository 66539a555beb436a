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

// x with upper(x) = q, q in (0, 0.5]; Abramowitz and Stegun 26.2.23, within 5e-4.
double inverse_upper(double q) {
  if (q > 0.5) return -inverse_upper(1 - q);
  const double t = std::sqrt(-2 * std::log(std::max(q, 1e-12)));
  return t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                 (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
}

constexpr double kPriorAnswers = 4;
constexpr int kRounds = 20;  // of EM; a fit goes on from the last, so few are needed

}  // namespace

RolloutLengths::RolloutLengths(int32_t max_new_tokens)
    : cap_(max_new_tokens), log_cap_(std::log(cap_)), mean_(std::log(cap_ / 6)) {
  KEEL_REQUIRE(max_new_tokens > 0, "[balance.rollout] expected max_new_tokens > 0, got {}",
               max_new_tokens);
}

void RolloutLengths::fit(std::span<const RolloutProgress> answers, int32_t num_groups) {
  shift_.resize(num_groups, 0);
  std::vector<double> logs;
  logs.reserve(answers.size());
  for (const auto& a : answers) logs.push_back(std::log(std::max(1, a.generated)));
  for (int round = 0; round < kRounds; ++round) improve(answers, logs);
}

// One round of EM: what unfinished answers are expected to be, then shifts, mean and spreads.
void RolloutLengths::improve(std::span<const RolloutProgress> answers,
                             std::span<const double> logs) {
  std::vector<Sums> groups(shift_.size());
  const double s = std::sqrt(within_);
  for (size_t i = 0; i < answers.size(); ++i) {
    const double m = mean_ + shift_[answers[i].group];
    double value = logs[i], variance = 0;
    if (!answers[i].done || value >= log_cap_) {  // unfinished, or cut: longer than this
      const auto tail = above((value - m) / s);
      value = m + s * tail.mean;
      variance = within_ * tail.variance;
    }
    auto& g = groups[answers[i].group];
    g.value += value;
    g.square += value * value;
    g.variance += variance;
    ++g.count;
  }
  shift_variance_.assign(shift_.size(), between_);
  double total = 0, shifts = 0, rest = 0, num = 0;
  int32_t num_seen = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto& sum = groups[g];
    if (sum.count == 0) continue;
    const double n = sum.count;
    const double keep = between_ / (between_ + within_ / n);
    shift_[g] = keep * (sum.value / n - mean_);
    shift_variance_[g] = between_ * (1 - keep);
    total += sum.value - n * shift_[g];
    shifts += shift_[g] * shift_[g] + shift_variance_[g];
    const double center = mean_ + shift_[g];
    rest += sum.square - 2 * center * sum.value + n * center * center + n * shift_variance_[g] +
            sum.variance;
    num += n;
    ++num_seen;
  }
  if (num_seen == 0) return;
  const double prior = std::log(cap_ / 6);
  mean_ = (total + kPriorAnswers * prior) / (num + kPriorAnswers);
  between_ = std::clamp((shifts + kPriorAnswers * 0.5) / (num_seen + kPriorAnswers), 0.01, 2.0);
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

double RolloutLengths::quantile(int32_t group, int32_t generated, double p) const {
  const double s = std::sqrt(within_ + shift_variance_[group]);
  const double m = mean_ + shift_[group];
  const double alive = upper((std::log(std::max(1, generated)) - m) / s);
  const double length = std::exp(m + s * inverse_upper(p * std::max(alive, 1e-9)));
  return std::clamp(length - generated, 1.0, std::max(1.0, cap_ - generated));
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
