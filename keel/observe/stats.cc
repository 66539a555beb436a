#include "keel/observe/stats.h"

#include <algorithm>
#include <cmath>

#include "keel/base/error.h"

namespace keel {
namespace {

std::vector<double> sorted_numbers(std::span<const double> values) {
  std::vector<double> kept;
  kept.reserve(values.size());
  std::copy_if(values.begin(), values.end(), std::back_inserter(kept),
               [](double v) { return !std::isnan(v); });
  std::sort(kept.begin(), kept.end());
  return kept;
}

}  // namespace

Summary summarize(std::span<const double> values) {
  Summary s;
  double sum = 0;
  for (const double v : values) {
    if (std::isnan(v)) continue;
    s.min = s.count == 0 ? v : std::min(s.min, v);
    s.max = s.count == 0 ? v : std::max(s.max, v);
    sum += v;
    ++s.count;
  }
  if (s.count == 0) return s;
  s.mean = sum / static_cast<double>(s.count);
  double squares = 0;
  for (const double v : values) {
    if (!std::isnan(v)) squares += (v - s.mean) * (v - s.mean);
  }
  s.std = std::sqrt(squares / static_cast<double>(s.count));
  return s;
}

std::vector<double> percentiles(std::span<const double> values, std::span<const double> percents) {
  const auto sorted = sorted_numbers(values);
  std::vector<double> out;
  out.reserve(percents.size());
  for (const double p : percents) {
    KEEL_CHECK(p >= 0 && p <= 100, "percentile {}", p);
    if (sorted.empty()) {
      out.push_back(0);
      continue;
    }
    const double place = p / 100 * static_cast<double>(sorted.size() - 1);
    const auto low = static_cast<size_t>(place);
    const size_t high = std::min(low + 1, sorted.size() - 1);
    const double share = place - static_cast<double>(low);
    // No arithmetic on an exact hit: infinite neighbours would turn it into NaN.
    out.push_back(share == 0 ? sorted[low] : sorted[low] + share * (sorted[high] - sorted[low]));
  }
  return out;
}

double median(std::span<const double> values) {
  const double half[] = {50};
  return percentiles(values, half)[0];
}

int64_t Histogram::count() const {
  int64_t n = 0;
  for (const int64_t c : counts) n += c;
  return n;
}

Histogram make_histogram(std::span<const double> values, int num_bins) {
  KEEL_CHECK(num_bins >= 1, "num_bins {}", num_bins);
  Histogram h;
  bool first = true;
  for (const double v : values) {
    if (!std::isfinite(v)) continue;
    h.min = first ? v : std::min(h.min, v);
    h.max = first ? v : std::max(h.max, v);
    h.sum += v;
    h.sum_squares += v * v;
    first = false;
  }
  if (first) return h;
  const bool flat = h.min == h.max;
  const int bins = flat ? 1 : num_bins;
  const double low = flat ? h.min - 0.5 : h.min;
  const double width = flat ? 1 : (h.max - h.min) / bins;
  for (int i = 0; i < bins; ++i) h.edges.push_back(low + width * i);
  h.edges.push_back(flat ? low + 1 : h.max);
  h.counts.assign(bins, 0);
  for (const double v : values) {
    if (!std::isfinite(v)) continue;
    // The stored edges decide, so that the counts agree with what is written down.
    const auto above = std::upper_bound(h.edges.begin(), h.edges.end(), v) - h.edges.begin();
    ++h.counts[std::clamp<int64_t>(above - 1, 0, bins - 1)];
  }
  return h;
}

}  // namespace keel
