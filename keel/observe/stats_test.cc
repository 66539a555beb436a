#include "keel/observe/stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace keel {
namespace {

const double kNan = std::numeric_limits<double>::quiet_NaN();
const double kInf = std::numeric_limits<double>::infinity();

TEST(Stats, SummaryLeavesNanOut) {
  const auto s = summarize(std::vector<double>{kNan, 2, 4, 4, 4, 5, 5, 7, 9, kNan});
  EXPECT_EQ(s.count, 8);
  EXPECT_EQ(s.mean, 5);
  EXPECT_EQ(s.std, 2);
  EXPECT_EQ(s.min, 2);
  EXPECT_EQ(s.max, 9);
  EXPECT_EQ(summarize({}).count, 0);
}

TEST(Stats, PercentilesInterpolateLikeNumpy) {
  // numpy.percentile([1, 2, 4, 8], [0, 10, 50, 90, 100])
  const double percents[] = {0, 10, 50, 90, 100};
  const auto p = percentiles(std::vector<double>{8, 1, 4, 2}, percents);
  const double expected[] = {1, 1.3, 3, 6.8, 8};
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(p[i], expected[i], 1e-12);
  EXPECT_EQ(median(std::vector<double>{kInf, 3, -kInf}), 3);
  EXPECT_EQ(median({}), 0);
}

TEST(Stats, HistogramCountsEveryFiniteValueOnce) {
  const auto h = make_histogram(std::vector<double>{0, 1, 2, 3, 4, 4, kNan, kInf}, 4);
  EXPECT_EQ(h.edges, (std::vector<double>{0, 1, 2, 3, 4}));
  EXPECT_EQ(h.counts, (std::vector<int64_t>{1, 1, 1, 3}));
  EXPECT_EQ(h.count(), 6);
  EXPECT_EQ(h.sum, 14);
  EXPECT_EQ(h.sum_squares, 46);
}

TEST(Stats, HistogramOfEqualOrNoValues) {
  const auto flat = make_histogram(std::vector<double>{7, 7}, 10);
  EXPECT_EQ(flat.edges, (std::vector<double>{6.5, 7.5}));
  EXPECT_EQ(flat.counts, (std::vector<int64_t>{2}));
  EXPECT_TRUE(make_histogram({}, 10).edges.empty());
}

TEST(Stats, IntegerBinsLieAroundTheNumbers) {
  const auto h = make_integer_histogram(std::vector<double>{3, 5, 5, 6}, 30);
  EXPECT_EQ(h.edges, (std::vector<double>{2.5, 3.5, 4.5, 5.5, 6.5}));
  EXPECT_EQ(h.counts, (std::vector<int64_t>{1, 0, 2, 1}));
  const auto wide = make_integer_histogram(std::vector<double>{1, 100, 32}, 10);
  EXPECT_EQ(wide.edges.size(), 11);
  EXPECT_EQ(wide.edges[1], 10.5);
  EXPECT_EQ(wide.count(), 3);
  EXPECT_EQ(make_integer_histogram(std::vector<double>{7, 7}, 5).counts.size(), 1);
}

}  // namespace
}  // namespace keel
