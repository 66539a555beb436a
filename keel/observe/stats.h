// Summaries of a step's values. Sums run in index order in f64, so equal input gives equal bits.
// NaN values are left out everywhere; an empty (or all-NaN) input gives count 0 and zeros.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace keel {

struct Summary {
  int64_t count = 0;
  double mean = 0, min = 0, max = 0;
  double std = 0;  // population (divides by count)
};
Summary summarize(std::span<const double> values);

// The values below which `percents` (each in 0..100) of the values lie, interpolated linearly
// between order statistics. Zeros for an empty input.
std::vector<double> percentiles(std::span<const double> values, std::span<const double> percents);

double median(std::span<const double> values);

// counts[i] values lie in [edges[i], edges[i+1]); the last bin also holds its upper edge.
struct Histogram {
  std::vector<double> edges;  // ascending, counts.size() + 1
  std::vector<int64_t> counts;
  double min = 0, max = 0, sum = 0, sum_squares = 0;

  int64_t count() const;
  bool operator==(const Histogram&) const = default;
};

// Bins of equal width from the smallest to the largest value; num_bins >= 1. Equal values make one
// bin of width 1 around them. Infinite values are left out.
Histogram make_histogram(std::span<const double> values, int num_bins);

// For whole numbers such as lengths: edges lie between them (4.5, 5.5, ...), every bin holds
// equally many of them, and there are at most max_bins bins.
Histogram make_integer_histogram(std::span<const double> values, int max_bins);

}  // namespace keel
