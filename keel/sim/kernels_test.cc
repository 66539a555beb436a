// Properties that every cost has to have, whatever its coefficients are.
#include "keel/sim/kernels.h"

#include <gtest/gtest.h>

#include <cmath>

#include "keel/base/rng.h"
#include "keel/base/test_data.h"
#include "keel/sim/evaluate.h"
#include "keel/sim/train_cost.h"

namespace keel::sim {
namespace {

Calibration kernel_calibration() {
  Calibration c;
  const std::pair<const char*, double> values[] = {{"gemm_efficiency", 0.7},
                                                   {"gemm_half_rows", 64},
                                                   {"grouped_gemm_efficiency", 0.5},
                                                   {"attention_efficiency", 0.6},
                                                   {"attention_backward_efficiency", 0.5},
                                                   {"memory_efficiency", 0.8},
                                                   {"kv_read_efficiency", 0.6},
                                                   {"link_efficiency", 0.8},
                                                   {"launch_s", 5e-6},
                                                   {"graph_launch_s", 1e-6},
                                                   {"collective_s", 1e-5}};
  for (const auto& [name, value] : values) {
    Coefficient k;
    k.owner = "any";
    k.name = name;
    k.value = k.prior = value;
    c.set(k);
  }
  return c;
}

HardwareSpec device(const char* id) {
  return load_hardware(std::string(KEEL_SOURCE_DIR).append("/twin/hardware/") + id + ".yaml");
}

double draw(uint64_t i, uint64_t field, double low, double high) {
  return low * std::pow(high / low, uniform(11, i, field));
}

TEST(Kernels, MoreBandwidthIsNeverSlower) {
  const auto calibration = kernel_calibration();
  const Coefficients c(calibration, "", "", "", "");
  for (uint64_t i = 0; i < 300; ++i) {
    const auto base = device(i % 2 == 0 ? "h100" : "ascend-a3-die");
    auto fast = base;
    const double factor = draw(i, 0, 1, 8);
    fast.memory_bytes_per_s *= factor;
    for (auto& level : fast.levels) level.bytes_per_s *= factor;
    const KernelCosts a(base, c), b(fast, c);
    const Gemm g = {draw(i, 1, 1, 1e4), draw(i, 2, 64, 2e4), draw(i, 3, 64, 2e4), "bf16", 0};
    EXPECT_LE(b.gemm_s(g), a.gemm_s(g));
    EXPECT_LE(b.grouped_gemm_s(g.m, 8, g), a.grouped_gemm_s(g.m, 8, g));
    EXPECT_LE(b.attention_decode_s(1e9, 1e9), a.attention_decode_s(1e9, 1e9));
    const RankGroup group = {int64_t{1} << uniform_int(8, 11, i, 4),
                             int64_t{1} << uniform_int(4, 11, i, 5)};
    const auto kind = static_cast<Collective>(uniform_int(6, 11, i, 6));
    const double bytes = draw(i, 7, 1e3, 1e10);
    EXPECT_LE(b.collective_s(kind, bytes, group), a.collective_s(kind, bytes, group));
    EXPECT_LE(a.collective_s(kind, bytes, group), a.collective_s(kind, 2 * bytes, group));
    EXPECT_EQ(a.collective_s(kind, bytes, {1, 1}), 0);
  }
}

TEST(Kernels, MoreRowsAreNeverFaster) {
  const auto calibration = kernel_calibration();
  const auto hardware = device("h100");
  const KernelCosts k(hardware, Coefficients(calibration, "", "", "", ""));
  double last = 0;
  for (double m = 1; m < 1e5; m *= 1.5) {
    const double s = k.gemm_s({m, 4096, 4096, "bf16", 0});
    EXPECT_GE(s, last);
    last = s;
  }
}

TEST(Kernels, CollectivesFollowTheTopology) {
  const auto calibration = kernel_calibration();
  const auto hardware = device("h100");
  const KernelCosts k(hardware, Coefficients(calibration, "", "", "", ""));
  // A ring of 8 in a node moves 7/8 of the bytes twice over NVLink.
  const double inside = k.collective_s(Collective::kAllReduce, 1e9, {8, 1});
  EXPECT_NEAR(inside, 2 * (7.0 / 8 * 1e9 / (450e9 * 0.8) + 7 * 3e-6) + 1e-5, 1e-12);
  // One rank of each node: all over the slow link.
  const double across = k.collective_s(Collective::kAllReduce, 1e9, {8, 8});
  EXPECT_NEAR(across, 2 * (7.0 / 8 * 1e9 / (50e9 * 0.8) + 7 * 5e-6) + 1e-5, 1e-12);
  // Whole nodes: each of 8 local ranks carries an eighth over the slow link.
  const double both = k.collective_s(Collective::kAllReduce, 1e9, {16, 1});
  EXPECT_GT(both, inside);
  EXPECT_LT(both, across);
}

// Training on links without cost takes the time of its computation.
TEST(Kernels, ZeroCostNetworkEqualsComputeBound) {
  const auto root = std::string(KEEL_SOURCE_DIR).append("/twin");
  const auto catalog = load_catalog(root);
  const auto calibration = load_calibrations(root + "/calibration");
  auto hardware = catalog.find_hardware("h100");
  for (auto& level : hardware.levels) {
    level.bytes_per_s = 1e30;
    level.latency_s = 0;
  }
  const auto& model = catalog.find_model("llama3-8b");
  const Coefficients c(calibration, "h100", "nvidia", "megatron", "");
  PassSettings one;
  PassSettings four;
  four.layout.tp = 4;
  const std::vector<MicroBatchLoad> load(4, {8192, attention_flops(model, 8192)});
  const auto slow = pass_time(model, catalog.find_hardware("h100"), four, load, c, true);
  const auto free_links = pass_time(model, hardware, four, load, c, true);
  EXPECT_LT(free_links.total, slow.total);
  for (const auto& [name, seconds] : free_links.parts) {
    if (name == "tp" || name == "ep" || name == "dp" || name == "cp") {
      EXPECT_LT(seconds, 1e-3 * free_links.total) << name;
    }
  }
  double sum = 0;
  for (const auto& [name, seconds] : slow.parts) sum += seconds;
  EXPECT_NEAR(sum, slow.total, 1e-9 * slow.total);
}

}  // namespace
}  // namespace keel::sim
