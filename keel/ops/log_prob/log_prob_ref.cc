#include "keel/ops/log_prob/log_prob_ref.h"

#include <algorithm>
#include <cmath>

namespace keel::ops {
namespace {

bool is_kept(const std::vector<int32_t>& kept, int64_t id) {
  return kept.empty() || std::binary_search(kept.begin(), kept.end(), static_cast<int32_t>(id));
}

}  // namespace

LogProbRef log_prob_ref(const std::vector<double>& logits, int64_t target, double temperature,
                        const std::vector<int32_t>& kept) {
  const auto vocab = static_cast<int64_t>(logits.size());
  double max = -1e300;
  for (int64_t v = 0; v < vocab; ++v)
    if (is_kept(kept, v)) max = std::max(max, logits[v] / temperature);
  LogProbRef out;
  out.probs.resize(vocab);
  double sum = 0;
  for (int64_t v = 0; v < vocab; ++v)
    if (is_kept(kept, v)) sum += out.probs[v] = std::exp(logits[v] / temperature - max);
  out.lse = max + std::log(sum);
  for (int64_t v = 0; v < vocab; ++v) {
    if (!is_kept(kept, v)) continue;
    out.probs[v] /= sum;
    out.entropy -= out.probs[v] * (logits[v] / temperature - out.lse);
  }
  out.log_prob = logits[target] / temperature - out.lse;
  return out;
}

std::vector<double> log_prob_grad_ref(const std::vector<double>& logits, int64_t target,
                                      double temperature, const std::vector<int32_t>& kept,
                                      double g, double h) {
  const LogProbRef f = log_prob_ref(logits, target, temperature, kept);
  std::vector<double> grad(logits.size());
  for (size_t v = 0; v < logits.size(); ++v) {
    if (!is_kept(kept, static_cast<int64_t>(v))) continue;
    const double log_p = logits[v] / temperature - f.lse;
    grad[v] = -f.probs[v] * (g + h * (log_p + f.entropy)) / temperature;
  }
  grad[target] += g / temperature;
  return grad;
}

}  // namespace keel::ops
