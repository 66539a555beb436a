#include "keel/sim/fit.h"

#include <gtest/gtest.h>

#include <cmath>

#include "keel/base/error.h"
#include "keel/base/test_data.h"
#include "keel/sim/evaluate.h"

namespace keel::sim {
namespace {

Coefficient coefficient(const std::string& name, double prior, double sigma) {
  Coefficient c;
  c.owner = "any";
  c.name = name;
  c.unit = "1";
  c.value = c.prior = prior;
  c.prior_sigma = sigma;
  return c;
}

// A machine with a known rate and a known fixed time: t = fixed + prompts / rate.
constexpr double kRate = 40, kFixed = 3;

double truth(double work) { return kFixed + work / kRate; }

std::vector<Prediction> model(const SimRun& run, const Calibration& c,
                              std::set<std::string>* used) {
  const double fixed = c.value({"any"}, "fixed", used), rate = c.value({"any"}, "rate", used);
  const double work = static_cast<double>(run.workload.prompts);
  return {{"step_s", fixed + work / rate, 0, {{"fixed", fixed}, {"work", work / rate}}}};
}

std::vector<SimRun> synthetic_runs() {
  std::vector<SimRun> runs;
  for (const int64_t work : {10, 40, 100, 300, 1000, 4000}) {
    SimRun run;
    run.id = "run" + std::to_string(work);
    run.family = work < 200 ? "small" : "large";
    run.confidence = "high";
    run.workload.prompts = work;
    run.targets = {"step_s"};
    run.measured["step_s"] = truth(static_cast<double>(work));
    runs.push_back(std::move(run));
  }
  return runs;
}

Calibration start() {
  Calibration c;
  c.set(coefficient("rate", 10, 3));
  c.set(coefficient("fixed", 1, 3));
  c.set(coefficient("unread", 7, 1));
  return c;
}

TEST(Fit, FindsKnownCoefficientsAndWhatFixedThem) {
  const auto runs = synthetic_runs();
  const auto data = fit_data(runs);
  const FitResult fit = fit_calibration(data, start(), model);
  EXPECT_NEAR(fit.calibration.find("any/rate")->value, kRate, 0.02 * kRate);
  EXPECT_NEAR(fit.calibration.find("any/fixed")->value, kFixed, 0.02 * kFixed);
  EXPECT_EQ(fit.calibration.find("any/unread")->value, 7);
  EXPECT_FALSE(fit.posterior.contains("any/unread"));
  const Posterior& rate = fit.posterior.at("any/rate");
  EXPECT_LT(rate.prior_share, 0.01);
  EXPECT_EQ(rate.families.front().first, "large");
  EXPECT_EQ(fit.posterior.at("any/fixed").families.front().first, "small");
}

TEST(Fit, OneWildRunDoesNotPullTheRest) {
  auto runs = synthetic_runs();
  runs[3].measured["step_s"] *= 4;
  const FitResult fit = fit_calibration(fit_data(runs), start(), model);
  EXPECT_NEAR(fit.calibration.find("any/rate")->value, kRate, 0.1 * kRate);
}

TEST(Fit, LeftOutRunsArePredictedFromTheOthers) {
  auto runs = synthetic_runs();
  runs[5].measured["step_s"] *= 1.5;
  const auto data = fit_data(runs);
  const FitResult fit = fit_calibration(data, start(), model);
  const std::vector<std::vector<size_t>> groups = {{0}, {5}};
  for (const bool exact : {false, true}) {
    const auto out = predict_left_out(data, groups, fit, model, exact);
    // Without the wild run its prediction is the truth; with it the fit leans towards it.
    EXPECT_NEAR(out[5], truth(4000), 0.04 * truth(4000)) << exact;
    EXPECT_GT(fit.predicted[5], out[5]);
    EXPECT_EQ(out[3], fit.predicted[3]);
  }
}

TEST(Fit, IsDeterministicAndKeepsBounds) {
  const auto runs = synthetic_runs();
  Calibration bounded = start();
  Coefficient rate = *bounded.find("any/rate");
  rate.min = 5;
  rate.max = 30;
  bounded.set(rate);
  const auto data = fit_data(runs);
  const FitResult a = fit_calibration(data, bounded, model);
  EXPECT_LE(a.calibration.find("any/rate")->value, 30 * (1 + 1e-12));
  EXPECT_EQ(to_yaml(a.calibration), to_yaml(fit_calibration(data, bounded, model).calibration));
}

TEST(Fit, LowConfidenceIsNotFittedAndSharesAreDifferences) {
  auto runs = synthetic_runs();
  runs[0].confidence = "low";
  EXPECT_EQ(fit_data(runs).size(), 5u);
  EXPECT_EQ(fit_data(runs, true).size(), 6u);
  EXPECT_NEAR(relative_error("first_dp_idle_share", 0.5, 0.4), 0.1, 1e-12);
  EXPECT_NEAR(relative_error("step_s", 110, 100), 0.1, 1e-12);
}

TEST(Fit, SaysWhichTargetHasNoModel) {
  auto runs = synthetic_runs();
  runs[1].targets = {"step_s", "latency_s"};
  runs[1].measured["latency_s"] = 1;
  const auto data = fit_data(runs);
  try {
    fit_calibration(data, start(), model);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("latency_s"), std::string::npos) << e.what();
  }
}

// The shipped coefficients on the committed public runs.
class Shipped : public testing::Test {
 protected:
  static std::string folder() { return std::string(KEEL_SOURCE_DIR) + "/twin"; }
  Catalog catalog = load_catalog(folder());
  Calibration calibration = load_calibrations(folder() + "/calibration");
  std::vector<SimRun> runs = load_run_files({test::golden("sim/runs")});
};

TEST_F(Shipped, PartsSumToTheTimeOfTrainingTargets) {
  for (const SimRun& run : runs) {
    if (run.kind != RunKind::kTrainStep && run.kind != RunKind::kRlEpoch) continue;
    for (const auto& p : predict(run, catalog, calibration)) {
      if (!p.target.ends_with("_s") || p.parts.empty()) continue;
      double sum = 0;
      for (const auto& [name, seconds] : p.parts) sum += seconds;
      EXPECT_NEAR(sum, p.value, 1e-9 * p.value) << run.id << " " << p.target;
    }
  }
}

TEST_F(Shipped, TrainingFamiliesStayWithinTheirErrors) {
  const std::map<std::string, double> most = {
      {"megatron-bridge", 0.06}, {"prime-rl", 0.05}, {"deepspeed-chat", 0.10}};
  PredictOptions options;
  options.num_seeds = 1;
  std::vector<SimRun> mine;
  for (const auto& run : runs) {
    if (most.contains(run.family)) mine.push_back(run);
  }
  const auto rows = family_table(evaluate(mine, catalog, calibration, options));
  for (const auto& row : rows) {
    if (most.contains(row.family)) {
      EXPECT_LT(row.median, most.at(row.family)) << row.family;
    }
  }
  EXPECT_EQ(rows.size(), most.size() + 1);
}

TEST_F(Shipped, MoreBandwidthIsNeverSlower) {
  for (const SimRun& run : runs) {
    if (run.kind != RunKind::kTrainStep) continue;
    Catalog faster = catalog;
    auto& hw = faster.hardware.at(run.hardware);
    hw.memory_bytes_per_s *= 2;
    for (auto& level : hw.levels) level.bytes_per_s *= 2;
    const auto before = predict(run, catalog, calibration);
    const auto after = predict(run, faster, calibration);
    for (size_t i = 0; i < before.size(); ++i) {
      if (before[i].target != "step_s" && before[i].target != "update_s") continue;
      EXPECT_LE(after[i].value, before[i].value) << run.id;
    }
  }
}

}  // namespace
}  // namespace keel::sim
