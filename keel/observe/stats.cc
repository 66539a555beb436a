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

struct Moments {
  Histogram of;
  bool empty = true;
};

// Smallest, largest and sums of the finite values; no bins yet.
Moments moments(std::span<const double> values) {
  Moments m;
  for (const double v : values) {
    if (!std::isfinite(v)) continue;
    m.of.min = m.empty ? v : std::min(m.of.min, v);
    m.of.max = m.empty ? v : std::max(m.of.max, v);
    m.of.sum += v;
    m.of.sum_squares += v * v;
    m.empty = false;
  }
  return m;
}

// The stored edges decide, so that the counts agree with what is written down.
void count_values(Histogram& h, std::span<const double> values) {
  const auto bins = static_cast<int64_t>(h.edges.size()) - 1;
  h.counts.assign(static_cast<size_t>(bins), 0);
  for (const double v : values) {
    if (!std::isfinite(v)) continue;
    const auto above = std::upper_bound(h.edges.begin(), h.edges.end(), v) - h.edges.begin();
    ++h.counts[static_cast<size_t>(std::clamp<int64_t>(above - 1, 0, bins - 1))];
  }
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
  auto h = moments(values);
  if (h.empty) return {};
  const bool flat = h.of.min == h.of.max;
  const int bins = flat ? 1 : num_bins;
  const double low = flat ? h.of.min - 0.5 : h.of.min;
  const double width = flat ? 1 : (h.of.max - h.of.min) / bins;
  for (int i = 0; i < bins; ++i) h.of.edges.push_back(low + width * i);
  h.of.edges.push_back(flat ? low + 1 : h.of.max);
  count_values(h.of, values);
  return h.of;
}

Histogram make_integer_histogram(std::span<const double> values, int max_bins) {
  KEEL_CHECK(max_bins >= 1, "max_bins {}", max_bins);
  auto h = moments(values);
  if (h.empty) return {};
  const double low = std::floor(h.of.min + 0.5) - 0.5;
  const double num_integers = std::floor(h.of.max + 0.5) + 0.5 - low;
  const double width = std::ceil(num_integers / max_bins);
  for (double edge = low; edge < low + num_integers; edge += width) h.of.edges.push_back(edge);
  h.of.edges.push_back(h.of.edges.back() + width);
  count_values(h.of, values);
  return h.of;
}

}  // namespace keel
