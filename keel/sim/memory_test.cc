// The memory model against published bytes: exact where it is arithmetic.
#include "keel/sim/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "keel/base/test_data.h"
#include "keel/sim/memory_cases.h"
#include "keel/sim/predict.h"

namespace keel::sim {
namespace {

std::string twin_file(const char* name) {
  return std::string(KEEL_SOURCE_DIR).append("/twin/").append(name);
}

const Catalog& shipped_catalog() {
  static const Catalog kCatalog = load_catalog(std::string(KEEL_SOURCE_DIR).append("/twin"));
  return kCatalog;
}

Calibration memory_calibration() { return load_calibration(twin_file("calibration/memory.yaml")); }

TEST(Memory, PublishedCases) {
  int compared = 0, silent = 0;
  for (const auto& c : load_memory_cases(test::golden("sim/memory.yaml"))) {
    const auto values = predict_memory_case(c, shipped_catalog(), memory_calibration());
    if (values.empty()) {
      EXPECT_EQ(c.confidence, "low") << c.id;
      ++silent;
      continue;
    }
    ASSERT_EQ(values.size(), c.expected.size()) << c.id;
    for (size_t i = 0; i < values.size(); ++i) {
      const double expected = c.expected[i].second;
      EXPECT_NEAR(values[i].second, expected, std::max(c.tolerance, 1e-9) * expected)
          << c.id << " " << values[i].first;
      if (std::getenv("KEEL_SIM_SHOW") != nullptr) {
        printf("%s %s %g %g %.4f\n", c.id.c_str(), values[i].first.c_str(), expected,
               values[i].second, values[i].second / expected - 1);
      }
      ++compared;
    }
  }
  EXPECT_GT(compared, 90);
  EXPECT_EQ(silent, 3);
}

TEST(Memory, PublishedTrainingPeaks) {
  std::vector<double> errors;
  for (const auto& name : {"prime-rl", "megatron-bridge"}) {
    for (const auto& run : load_runs(test::golden(std::string("sim/runs/") + name + ".yaml"))) {
      for (const auto& p : predict_train_memory(run, shipped_catalog(), memory_calibration(), {})) {
        errors.push_back(std::abs(p.value / run.measured.at(p.target) - 1));
        double sum = 0;
        for (const auto& [part, value] : p.parts) sum += value;
        EXPECT_NEAR(sum, p.value, 1e-9 * p.value);
        if (std::getenv("KEEL_SIM_SHOW") != nullptr) {
          printf("%s %g %g", run.id.c_str(), run.measured.at(p.target), p.value);
          for (const auto& [part, value] : p.parts) printf(" %s %.2f", part.c_str(), value);
          printf("\n");
        }
      }
    }
  }
  ASSERT_EQ(errors.size(), 23u);
  std::sort(errors.begin(), errors.end());
  EXPECT_LT(errors[errors.size() / 2], 0.04);
  EXPECT_LT(errors[errors.size() * 9 / 10], 0.08);
}

}  // namespace
}  // namespace keel::sim
