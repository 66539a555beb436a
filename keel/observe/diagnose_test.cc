#include "keel/observe/diagnose.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "keel/observe/metric_names.h"

namespace keel {
namespace {

using Edit = std::function<void(StepRecord&, double progress)>;  // progress: 0 first, 1 last step

// A healthy run of 40 steps; `edit` spoils it.
std::vector<StepRecord> run_of(const Edit& edit = {}, int num_steps = 40) {
  std::vector<StepRecord> records;
  for (int i = 0; i < num_steps; ++i) {
    const double p = num_steps > 1 ? static_cast<double>(i) / (num_steps - 1) : 0;
    StepRecord r(i + 1);
    const double wave = i % 2 == 0 ? 0.02 : -0.02;
    r.set(metric::kScoreMean, 0.2 + 0.5 * p + wave);
    r.set(metric::kScoreMin, 0);
    r.set(metric::kScoreMax, 1);
    r.set(metric::kAccuracy, 0.2 + 0.5 * p + wave);
    r.set(metric::kZeroStdGroups, 0.2);
    r.set(metric::kResponseMean, 100 + 10 * p);
    r.set(metric::kResponseClip, 0.05);
    r.set(metric::kEntropy, 1 - 0.5 * p);
    r.set(metric::kKlLoss, 0.01 + 0.01 * p);
    r.set(metric::kPpoKl, 0);
    r.set(metric::kClipFraction, 0.02);
    r.set(metric::kGradNorm, 0.5 + wave);
    r.set(metric::kRolloutDiffMax, 0);
    r.set(metric::kRolloutDiffMean, 0);
    r.set(metric::kThroughput, 1000 + 1000 * wave);
    r.set(metric::kCpuMemory, 1.5);
    r.set(metric::kSkippedUpdates, 0);
    if (edit) edit(r, p);
    records.push_back(r);
  }
  return records;
}

const RunFinding* find(const std::vector<RunFinding>& findings, const std::string& id) {
  for (const auto& f : findings) {
    if (f.id == id) return &f;
  }
  return nullptr;
}

TEST(Diagnose, HealthyOrEmptyRunsGiveNoFinding) {
  for (const int num_steps : {0, 1, 5, 20, 40, 200}) {
    const auto findings = diagnose(run_of({}, num_steps));
    EXPECT_TRUE(findings.empty()) << num_steps << ": " << findings[0].title;
  }
}

struct Case {
  const char* id;
  Severity severity;
  Edit edit;
};

TEST(Diagnose, EachFaultIsNamedAndNothingElseIs) {
  using namespace metric;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto set = [](const char* name, double v) {
    return [=](StepRecord& r, double) { r.set(name, v); };
  };
  const auto drift = [](const char* name, double from, double to) {
    return [=](StepRecord& r, double p) { r.set(name, from + (to - from) * p); };
  };
  const Case cases[] = {
      {"zero_std_groups", Severity::kProblem, set(kZeroStdGroups, 0.97)},
      {"zero_std_groups", Severity::kWarning, set(kZeroStdGroups, 0.6)},
      {"truncation", Severity::kWarning, set(kResponseClip, 0.3)},
      {"truncation", Severity::kProblem, set(kResponseClip, 0.9)},
      {"aborted", Severity::kWarning, set(kAborted, 0.2)},
      {"entropy_low", Severity::kWarning, drift(kEntropy, 0.015, 0.01)},
      {"entropy_rising", Severity::kProblem, drift(kEntropy, 1, 6)},
      {"clip_fraction", Severity::kWarning, set(kClipFraction, 0.4)},
      {"kl_rising", Severity::kWarning, drift(kKlLoss, 0.01, 0.6)},
      {"kl_rising", Severity::kProblem, drift(kKlLoss, 0.01, 5)},
      {"update_too_large", Severity::kWarning, set(kPpoKl, 0.3)},
      {"no_gradient", Severity::kProblem, set(kGradNorm, 0)},
      {"gradient_spike", Severity::kWarning,
       [](StepRecord& r, double) {
         if (r.step() == 17) r.set(kGradNorm, 80);
       }},
      {"skipped_updates", Severity::kWarning,
       [](StepRecord& r, double) {
         if (r.step() == 17) r.set(kSkippedUpdates, 1);
       }},
      {"skipped_updates", Severity::kProblem, set(kSkippedUpdates, 1)},
      {"not_finite_metric", Severity::kWarning,
       [=](StepRecord& r, double) {
         if (r.step() == 17) r.set(kPgLoss, nan);
       }},
      {"exactness_broken", Severity::kProblem,
       [](StepRecord& r, double) {
         if (r.step() > 30) r.set(kRolloutDiffMax, 1e-6);
       }},
      {"rollout_difference", Severity::kProblem, set(kRolloutDiffMean, 0.02)},
      {"rollout_difference", Severity::kWarning,
       [](StepRecord& r, double) {
         r.set(kExact, 0);
         r.set(kRolloutDiffMax, 0.3);
         r.set(kRolloutDiffMean, 0.007);
       }},
      {"all_rewards_equal", Severity::kProblem,
       [](StepRecord& r, double) {
         for (const char* name : {kScoreMean, kScoreMax, kScoreMin, kGradNorm}) r.set(name, 0);
         r.set(kZeroStdGroups, 1);
       }},
      {"reward_collapse", Severity::kProblem,
       [](StepRecord& r, double p) {
         r.set(kScoreMean, p < 0.6 ? 0.2 + p : 0.8 - 1.8 * (p - 0.6));
       }},
      {"no_progress", Severity::kWarning,
       [](StepRecord& r, double) { r.set(kScoreMean, r.step() % 2 == 0 ? 0.2 : 0.3); }},
      {"length_drift", Severity::kInfo, drift(kResponseMean, 100, 300)},
      {"throughput_drop", Severity::kWarning, drift(kThroughput, 1000, 200)},
      {"memory_growth", Severity::kWarning, drift(kCpuMemory, 1, 4)},
      {"overfitting", Severity::kWarning,
       [](StepRecord& r, double p) {
         if (r.step() % 10 == 0) r.set("val-core/gsm8k/acc/mean@4", p < 0.6 ? 0.7 : 0.4);
       }},
  };
  for (const auto& c : cases) {
    const auto findings = diagnose(run_of(c.edit));
    const auto* f = find(findings, c.id);
    ASSERT_NE(f, nullptr) << c.id;
    EXPECT_EQ(f->severity, c.severity) << c.id;
    EXPECT_EQ(findings.size(), 1) << c.id << " and " << findings.back().id;
    EXPECT_FALSE(f->title.empty() || f->cause.empty() || f->advice.empty()) << c.id;
  }
}

TEST(Diagnose, SaysWhichWayAndOrdersBySeverity) {
  const auto findings = diagnose(run_of([](StepRecord& r, double p) {
    r.set(metric::kZeroStdGroups, 0.97);
    r.set(metric::kResponseMean, 100 + 200 * p);
    r.set(metric::kClipFraction, 0.4);
  }));
  ASSERT_EQ(findings.size(), 3);
  EXPECT_EQ(findings[0].title, "97 % of the groups have equal rewards, so they give no gradient");
  EXPECT_NE(findings[0].advice.find("rollout.n"), std::string::npos);
  EXPECT_EQ(findings[1].id, "clip_fraction");
  EXPECT_EQ(findings[2].id, "length_drift");
  // A solved task is no problem.
  const auto solved = diagnose(run_of([](StepRecord& r, double p) {
    r.set(metric::kAccuracy, 0.2 + 0.79 * p);
    if (p > 0.7) r.set(metric::kAccuracy, 0.98);
    r.set(metric::kZeroStdGroups, 0.2 + 0.75 * p);
  }));
  ASSERT_EQ(solved.size(), 1);
  EXPECT_EQ(solved[0].severity, Severity::kInfo);
  EXPECT_NE(solved[0].cause.find("too easy"), std::string::npos);
}

}  // namespace
}  // namespace keel
