#include "keel/ops/log_prob/truncation.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "keel/ops/log_prob/log_prob_tile.h"

namespace keel::ops {
namespace {

struct Candidate {
  float logit;
  int32_t id;
  float weight;  // exp(logit - max)
};

// Descending; of equal logits the lower id comes first, so the higher one is cut first.
bool before(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

float kth_largest(std::span<const float> logits, int32_t k) {
  // The k-th largest of block maxima bounds the k-th largest value from below.
  constexpr size_t kBlock = 64;
  std::vector<float> maxima;
  for (size_t b = 0; b < logits.size(); b += kBlock) {
    const auto block = logits.subspan(b, std::min(kBlock, logits.size() - b));
    maxima.push_back(*std::max_element(block.begin(), block.end()));
  }
  std::vector<float> values;
  if (maxima.size() >= static_cast<size_t>(k)) {
    auto sorted = maxima;
    std::nth_element(sorted.begin(), sorted.begin() + k - 1, sorted.end(), std::greater<>());
    const float bound = sorted[k - 1];
    for (size_t b = 0; b < maxima.size(); ++b) {
      if (maxima[b] < bound) continue;
      for (const float l : logits.subspan(b * kBlock, std::min(kBlock, logits.size() - b * kBlock)))
        if (l >= bound) values.push_back(l);
    }
  } else {
    values.assign(logits.begin(), logits.end());
  }
  std::nth_element(values.begin(), values.begin() + k - 1, values.end(), std::greater<>());
  return values[k - 1];
}

// Keeps the candidates above which less than `wanted` weight lies: a binary search that halves the
// candidates and sums the upper half.
void cut_top_p(std::vector<Candidate>& all, double wanted) {
  auto low = all.begin();
  auto high = all.end();
  double above = 0;
  while (high - low > 1) {
    const auto middle = low + (high - low) / 2;
    std::nth_element(low, middle, high, before);
    const double upper = std::accumulate(
        low, middle, 0.0, [](double sum, const Candidate& c) { return sum + c.weight; });
    if (above + upper < wanted) {  // middle itself is kept
      above += upper;
      low = middle;
    } else {
      high = middle;
    }
  }
  if (low != all.end()) all.erase(low + 1, all.end());
}

}  // namespace

std::vector<int32_t> kept_ids(std::span<const float> logits, float max, int32_t top_k, float top_p,
                              float min_p) {
  const auto n = static_cast<int32_t>(logits.size());
  const float bound =
      top_k > 0 && top_k < n ? kth_largest(logits, top_k) : -std::numeric_limits<float>::infinity();
  std::vector<float> weights((n + 15) / 16 * 16, -std::numeric_limits<float>::infinity());
  std::copy(logits.begin(), logits.end(), weights.begin());
  exp_shifted(weights.data(), n, max, weights.data());
  double total = 0;
  for (int32_t id = 0; id < n; ++id)
    if (logits[id] >= bound) total += weights[id];
  // All that lies below this adds up to less than the part that top-p cuts anyway.
  const auto negligible = static_cast<float>((1 - double{top_p}) * total / n * 0.999);
  std::vector<Candidate> left;
  for (int32_t id = 0; id < n; ++id)
    if (logits[id] >= bound && (top_p >= 1 || weights[id] >= negligible))
      left.push_back({logits[id], id, weights[id]});
  if (top_p < 1) cut_top_p(left, top_p * total);
  if (min_p > 0)
    std::erase_if(left, [&](const Candidate& c) { return c.weight < min_p && c.logit != max; });
  if (std::ssize(left) == n) return {};
  std::vector<int32_t> ids;
  for (const Candidate& c : left) ids.push_back(c.id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace keel::ops
