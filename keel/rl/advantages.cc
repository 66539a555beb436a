#include "keel/rl/advantages.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "keel/base/error.h"

namespace keel::rl {
namespace {

using Members = std::map<int64_t, std::vector<size_t>>;

Members by_group(std::span<const int64_t> groups) {
  Members members;
  for (size_t i = 0; i < groups.size(); ++i) members[groups[i]].push_back(i);
  return members;
}

double mean_of_members(std::span<const double> x, const std::vector<size_t>& ids) {
  double sum = 0;
  for (const size_t i : ids) sum += x[i];
  return sum / static_cast<double>(ids.size());
}

// Sample standard deviation (n - 1).
double std_of(std::span<const double> x, const std::vector<size_t>& ids, double mean) {
  double sum = 0;
  for (const size_t i : ids) sum += (x[i] - mean) * (x[i] - mean);
  return std::sqrt(sum / static_cast<double>(ids.size() - 1));
}

void whiten(std::vector<double>& a, std::span<const int64_t> num_tokens) {
  double count = 0, sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    count += static_cast<double>(num_tokens[i]);
    sum += a[i] * static_cast<double>(num_tokens[i]);
  }
  if (count < 2) return;
  const double mean = sum / count;
  double square = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    square += (a[i] - mean) * (a[i] - mean) * static_cast<double>(num_tokens[i]);
  }
  const double scale = 1.0 / std::sqrt(square / (count - 1) + 1e-8);
  for (double& v : a) v = (v - mean) * scale;
}

}  // namespace

std::vector<double> compute_advantages(const AdvantageConfig& config,
                                       std::span<const double> rewards,
                                       std::span<const int64_t> groups,
                                       std::span<const int64_t> num_tokens) {
  KEEL_CHECK(rewards.size() == groups.size() && rewards.size() == num_tokens.size(),
             "{} rewards, {} groups", rewards.size(), groups.size());
  std::vector<double> a(rewards.size());
  for (const auto& [group, ids] : by_group(groups)) {
    const auto n = static_cast<double>(ids.size());
    const bool alone = ids.size() == 1;
    const double mean = alone ? 0 : mean_of_members(rewards, ids);
    double scale = 1;
    if (config.estimator == AdvantageEstimator::kGrpo) {
      scale = 1.0 / ((alone ? 1.0 : std_of(rewards, ids, mean)) + config.epsilon);
    } else if (config.estimator == AdvantageEstimator::kRloo && !alone) {
      scale = n / (n - 1);
    }
    for (const size_t i : ids) a[i] = (rewards[i] - mean) * scale;
  }
  if (config.estimator == AdvantageEstimator::kReinforcePlusPlusBaseline) whiten(a, num_tokens);
  return a;
}

double zero_signal_share(std::span<const double> rewards, std::span<const int64_t> groups) {
  int64_t total = 0, flat = 0;
  for (const auto& [group, ids] : by_group(groups)) {
    if (ids.size() < 2) continue;
    ++total;
    flat += std::all_of(ids.begin(), ids.end(),
                        [&](size_t i) { return rewards[i] == rewards[ids[0]]; });
  }
  return total == 0 ? 0.0 : static_cast<double>(flat) / static_cast<double>(total);
}

}  // namespace keel::rl
