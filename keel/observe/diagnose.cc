#include "keel/observe/diagnose.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "keel/observe/metric_names.h"

namespace keel {
namespace {

constexpr size_t kWindowSteps = 10;
constexpr size_t kDriftSteps = 2 * kWindowSteps;

struct Point {
  int64_t step;
  double value;
};

// The finite values of one metric, with the means that rules ask for.
class Series {
 public:
  Series(std::span<const StepRecord> records, const char* name) {
    for (const auto& r : records) {
      const auto v = r.get(name);
      if (v && std::isfinite(*v)) points_.push_back({r.step(), *v});
      if (v && !std::isfinite(*v)) ++num_not_finite_;
    }
  }
  bool empty() const { return points_.empty(); }
  bool has_drift() const { return points_.size() >= kDriftSteps; }
  const std::vector<Point>& points() const { return points_; }
  int64_t num_not_finite() const { return num_not_finite_; }

  double first() const { return mean(0, std::min(kWindowSteps, points_.size())); }
  double last() const {
    return mean(points_.size() - std::min(kWindowSteps, points_.size()), points_.size());
  }
  double mean(size_t begin, size_t end) const {
    double sum = 0;
    for (size_t i = begin; i < end; ++i) sum += points_[i].value;
    return end > begin ? sum / static_cast<double>(end - begin) : 0;
  }
  double sum() const {
    double s = 0;
    for (const auto& p : points_) s += p.value;
    return s;
  }
  Point highest() const {
    return *std::max_element(points_.begin(), points_.end(),
                             [](const Point& a, const Point& b) { return a.value < b.value; });
  }
  double lowest() const {
    double low = points_.front().value;
    for (const auto& p : points_) low = std::min(low, p.value);
    return low;
  }

 private:
  std::vector<Point> points_;
  int64_t num_not_finite_ = 0;
};

struct Run {
  std::span<const StepRecord> records;
  Series of(const char* name) const { return {records, name}; }
  // The score where it is recorded, else the reward.
  Series reward() const {
    const auto score = of(metric::kScoreMean);
    return score.empty() ? of(metric::kRewardMean) : score;
  }
};

using Findings = std::vector<RunFinding>;

bool has(const Findings& findings, std::string_view id) {
  return std::any_of(findings.begin(), findings.end(), [&](const auto& f) { return f.id == id; });
}

std::string percent(double share) { return fmt::format("{:.0f} %", share * 100); }

void not_finite(const Run& run, Findings& out) {
  const auto skipped = run.of(metric::kSkippedUpdates);
  if (const double n = skipped.empty() ? 0 : skipped.sum(); n > 0) {
    const double share = n / static_cast<double>(skipped.points().size());
    out.push_back({"skipped_updates", share > 0.05 ? Severity::kProblem : Severity::kWarning,
                   fmt::format("{:.0f} optimizer updates were skipped: the gradient held NaN or "
                               "infinity",
                               n),
                   "The weights were left as they were, so a rare skip does no harm; many of them "
                   "mean that the loss overflows.",
                   "Lower the learning rate, clip the gradient harder, or look at the rewards of "
                   "those steps for huge values."});
  }
  for (const char* name : {metric::kPgLoss, metric::kGradNorm, metric::kEntropy, metric::kKlLoss}) {
    const auto n = run.of(name).num_not_finite();
    if (n == 0) continue;
    out.push_back({"not_finite_metric", Severity::kWarning,
                   fmt::format("{} was NaN or infinite in {} steps", name, n),
                   "A loss or a log-prob overflowed in these steps.",
                   "Lower the learning rate; replay the dumped samples of such a step to find the "
                   "answer that does it."});
  }
}

void inexact_rollout(const Run& run, Findings& out) {
  const auto largest = run.of(metric::kRolloutDiffMax);
  if (largest.empty()) return;
  const auto mean = run.of(metric::kRolloutDiffMean);
  const double now = mean.empty() ? 0 : mean.last();
  const auto exact = run.of(metric::kExact);
  const bool promised = exact.empty() || exact.points().back().value == 1;
  const double worst = largest.highest().value;
  if (now > 0.01) {
    out.push_back({"rollout_difference", Severity::kProblem,
                   fmt::format("Sampling and training disagree: token probabilities differ by "
                               "{:.4f} on average",
                               now),
                   "Above 0.01 the policy gradient is computed for another policy than the one "
                   "that wrote the answers; training may drift or collapse.",
                   "Use the same precision and options for both, or recompute the old log-probs "
                   "and correct with importance weights."});
  } else if (promised && worst > 0) {
    out.push_back({"exactness_broken", Severity::kProblem,
                   fmt::format("Sampling and training should agree bit for bit, but differ by up "
                               "to {:.2e} (first at step {})",
                               worst,
                               std::find_if(largest.points().begin(), largest.points().end(),
                                            [](const Point& p) { return p.value > 0; })
                                   ->step),
                   "All forward kernels are batch-invariant, so any difference is a defect or a "
                   "change of machine between sampling and training.",
                   "Check that all ranks have the same CPU and numerics id; please report it with "
                   "the samples of that step."});
  } else if (now > 0.005) {
    out.push_back({"rollout_difference", Severity::kWarning,
                   fmt::format("Token probabilities of sampling and training differ by {:.4f} on "
                               "average",
                               now),
                   "Below 0.005 is healthy, above 0.01 is broken.",
                   "Recompute the old log-probs; keep an eye on the curve."});
  }
}

void equal_rewards(const Run& run, Findings& out) {
  const auto low = run.of(metric::kScoreMin), high = run.of(metric::kScoreMax);
  if (low.empty() || low.points().size() != high.points().size()) return;
  const size_t n = high.points().size();
  size_t flat = 0;  // steps at the end whose answers all scored the same
  while (flat < n && high.points()[n - 1 - flat].value == low.points()[n - 1 - flat].value) ++flat;
  if (flat < 3) return;
  const double value = high.points().back().value;
  const bool always = flat == n;
  out.push_back(
      {"all_rewards_equal", Severity::kProblem,
       fmt::format("Every answer of the last {} steps scored {:g}, so nothing can be learnt", flat,
                   value),
       always ? "It has been so since the first step: most likely the reward rule does not find "
                "the answer in the text (format, stop string, length limit), or the task is far "
                "too hard or too easy."
              : "The task is solved, or the policy has collapsed to one behaviour.",
       always ? "Read the samples below next to their expected answers; check the reward rule and "
                "the prompt template."
              : "If the score is the best possible, stop or take harder data; otherwise go back to "
                "an earlier checkpoint with a lower learning rate."});
}

// Whether the task is more solved than not: by accuracy, else by where the mean score lies between
// the lowest and the highest score ever seen.
bool mostly_solved(const Run& run) {
  const auto accuracy = run.of(metric::kAccuracy);
  if (!accuracy.empty()) return accuracy.last() > 0.5;
  const auto mean = run.of(metric::kScoreMean);
  const auto low = run.of(metric::kScoreMin), high = run.of(metric::kScoreMax);
  if (mean.empty() || low.empty() || high.empty()) return false;
  return mean.last() > 0.5 * (low.lowest() + high.highest().value);
}

void zero_std_groups(const Run& run, Findings& out) {
  const auto zero = run.of(metric::kZeroStdGroups);
  if (zero.empty() || zero.last() < 0.5 || has(out, "all_rewards_equal")) return;
  const bool solved = mostly_solved(run);
  const auto accuracy = run.of(metric::kAccuracy);
  const bool done = !accuracy.empty() && accuracy.last() > 0.9;
  const auto severity = done                 ? Severity::kInfo
                        : zero.last() >= 0.9 ? Severity::kProblem
                                             : Severity::kWarning;
  out.push_back({"zero_std_groups", severity,
                 fmt::format("{} of the groups have equal rewards, so they give no gradient",
                             percent(zero.last())),
                 solved ? "The prompts are mostly too easy: all answers of a group are right. At "
                          "the end of a run on an easy task this is what success looks like."
                        : "The prompts are mostly too hard: all answers of a group are wrong.",
                 solved
                     ? "Take harder prompts, raise rollout.n, or filter such groups with dynamic "
                       "sampling."
                     : "Lower the difficulty, raise rollout.n or the temperature, or start from "
                       "a model that solves some of them."});
}

void truncation(const Run& run, Findings& out) {
  const auto clipped = run.of(metric::kResponseClip);
  if (clipped.empty() || clipped.last() <= 0.2) return;
  out.push_back(
      {"truncation", clipped.last() > 0.5 ? Severity::kProblem : Severity::kWarning,
       fmt::format("{} of the answers are cut at the length limit", percent(clipped.last())),
       "A cut answer usually scores as wrong, whatever it was going to say, and teaches "
       "the model to stop early or not at all.",
       "Raise the response limit, check the stop ids, or use the soft overlong penalty."});
}

void aborted(const Run& run, Findings& out) {
  const auto share = run.of(metric::kAborted);
  if (share.empty() || share.last() <= 0.1) return;
  out.push_back({"aborted", Severity::kWarning,
                 fmt::format("{} of the answers were aborted", percent(share.last())),
                 "Aborted answers cost generation time and are not trained on.",
                 "Look in log.txt for the reason; lower over-sampling or raise time limits."});
}

void entropy(const Run& run, Findings& out) {
  const auto e = run.of(metric::kEntropy);
  if (e.empty()) return;
  const auto accuracy = run.of(metric::kAccuracy);
  const bool solved = !accuracy.empty() && accuracy.last() > 0.9;
  if (e.last() < 0.02 || (e.has_drift() && e.last() < 0.05 && e.last() < 0.1 * e.first())) {
    out.push_back({"entropy_low", solved ? Severity::kInfo : Severity::kWarning,
                   fmt::format("Entropy is near zero ({:.3f} nats)", e.last()),
                   solved ? "The policy is sure of its answers and they are right: normal for a "
                            "solved task, but there is nothing left to explore."
                          : "The policy gives nearly the same answer every time, so it no longer "
                            "explores.",
                   solved ? "Stop here or move on to harder data."
                          : "Raise the upper clip bound (clip-higher) or the temperature, add a KL "
                            "term, or lower the learning rate."});
  } else if (e.has_drift() && e.last() > 2 * e.first() && e.last() > e.first() + 1) {
    out.push_back({"entropy_rising", Severity::kProblem,
                   fmt::format("Entropy rose from {:.2f} to {:.2f} nats", e.first(), e.last()),
                   "The policy is becoming random; text usually turns into gibberish soon.",
                   "Lower the learning rate, tighten the clip, add a KL term; read the last "
                   "samples."});
  }
}

void clipping(const Run& run, Findings& out) {
  const auto c = run.of(metric::kClipFraction);
  if (c.empty() || c.last() <= 0.2) return;
  out.push_back({"clip_fraction", Severity::kWarning,
                 fmt::format("{} of the tokens are clipped", percent(c.last())),
                 "The policy moves too far within one batch: clipped tokens give no gradient.",
                 "Lower the learning rate or the number of updates per batch."});
}

void kl(const Run& run, Findings& out) {
  const auto ref = run.of(metric::kKlLoss);
  if (ref.has_drift() && ref.last() > 0.1 && ref.last() > 3 * ref.first()) {
    out.push_back({"kl_rising", ref.last() > 1 ? Severity::kProblem : Severity::kWarning,
                   fmt::format("KL to the reference model rose from {:.3f} to {:.3f} per token",
                               ref.first(), ref.last()),
                   "The policy moves far away from the model it started from; it may lose other "
                   "skills or exploit the reward rule.",
                   "Raise the KL weight, lower the learning rate, and compare samples of the first "
                   "and last step."});
  }
  const auto ppo = run.of(metric::kPpoKl);
  if (!ppo.empty() && std::abs(ppo.last()) > 0.1) {
    out.push_back({"update_too_large", Severity::kWarning,
                   fmt::format("One batch changes the policy by {:.2f} nats per token", ppo.last()),
                   "Updates this large leave the region where the loss is a good guide.",
                   "Lower the learning rate or the number of updates per batch."});
  }
}

void gradient(const Run& run, Findings& out) {
  const auto g = run.of(metric::kGradNorm);
  if (g.points().size() < 3) return;
  std::vector<double> values;
  for (const auto& p : g.points()) values.push_back(p.value);
  const double typical = median(values);
  if (g.last() == 0) {
    if (has(out, "all_rewards_equal")) return;
    out.push_back({"no_gradient", Severity::kProblem, "The gradient is exactly zero",
                   "No answer has a non-zero advantage, or every token is masked or clipped.",
                   "See the findings on rewards; check the loss mask of your data."});
    return;
  }
  const auto peak = g.highest();
  if (typical > 0 && peak.value > 20 * typical) {
    out.push_back({"gradient_spike", Severity::kWarning,
                   fmt::format("The gradient norm jumped to {:.3g} at step {} (usually {:.3g})",
                               peak.value, peak.step, typical),
                   "A few extreme answers or an unstable policy.",
                   "Gradient clipping limits the damage; if it happens often lower the learning "
                   "rate or cap long answers."});
  }
}

void reward_course(const Run& run, Findings& out) {
  const auto r = run.reward();
  if (!r.has_drift()) return;
  double best = r.first();
  size_t best_end = kWindowSteps;
  for (size_t end = kWindowSteps; end <= r.points().size(); ++end) {
    const double m = r.mean(end - kWindowSteps, end);
    if (m > best) best = m, best_end = end;
  }
  const double span = r.highest().value - r.lowest();
  const double gained = best - r.first(), lost = best - r.last();
  if (span > 0 && lost > 0.2 * span && lost > 0.5 * std::max(gained, 0.2 * span)) {
    out.push_back({"reward_collapse", Severity::kProblem,
                   fmt::format("The reward fell from {:.3f} (around step {}) to {:.3f}", best,
                               r.points()[best_end - 1].step, r.last()),
                   "The policy got worse again: too large updates, or it ran into a corner of the "
                   "reward rule.",
                   "Continue from the best checkpoint with a lower learning rate."});
  } else if (r.points().size() >= 3 * kWindowSteps && gained <= 0.05 * span && span > 0) {
    out.push_back(
        {"no_progress", Severity::kWarning,
         fmt::format("The reward has not moved: {:.3f} at first, {:.3f} now", r.first(), r.last()),
         "The learning rate may be too small, the batch too noisy, or few groups give a "
         "gradient.",
         "Raise the learning rate or rollout.n; look at the share of groups with equal "
         "rewards."});
  }
}

void length_drift(const Run& run, Findings& out) {
  const auto r = run.reward(), length = run.of(metric::kResponseMean);
  if (!r.has_drift() || !length.has_drift() || length.first() <= 0) return;
  const double gain = r.last() - r.first(), ratio = length.last() / length.first();
  const double span = r.highest().value - r.lowest();
  if (gain <= 0.1 * span || (ratio > 0.5 && ratio < 1.5)) return;
  out.push_back({"length_drift", Severity::kInfo,
                 fmt::format("The reward rose while answers got {} ({:.0f} to {:.0f} tokens)",
                             ratio > 1 ? "longer" : "shorter", length.first(), length.last()),
                 ratio > 1 ? "Longer answers can be better reasoning, or padding that the reward "
                             "rule likes."
                           : "Shorter answers can be a learnt format, or reasoning that was lost.",
                 "Compare samples of the first and last step."});
}

void overfitting(const Run& run, Findings& out) {
  const auto r = run.reward();
  for (const auto& name : metric_names_with(run.records, metric::kValidationPrefix)) {
    if (name.find("/mean@") == name.npos) continue;
    const auto v = run.of(name.c_str());
    if (v.points().size() < 3 || !r.has_drift()) continue;
    const auto best = v.highest();
    const double lost = best.value - v.points().back().value;
    if (lost < 0.1 || r.last() < r.first()) continue;
    out.push_back({"overfitting", Severity::kWarning,
                   fmt::format("Validation ({}) fell from {:.3f} at step {} to {:.3f} while the "
                               "training reward did not",
                               name, best.value, best.step, v.points().back().value),
                   "The policy learns the training prompts rather than the task.",
                   "Use the best checkpoint; add data, or stop earlier."});
  }
}

void throughput(const Run& run, Findings& out) {
  const auto t = run.of(metric::kThroughput);
  if (!t.has_drift() || t.first() <= 0) return;
  const double ratio = t.last() / t.first();
  if (ratio >= 0.6) return;
  const auto length = run.of(metric::kResponseMean);
  const bool shorter = length.has_drift() && length.last() < 0.7 * length.first();
  out.push_back({"throughput_drop", shorter ? Severity::kInfo : Severity::kWarning,
                 fmt::format("Throughput fell from {:.0f} to {:.0f} tokens/s", t.first(), t.last()),
                 shorter ? "Answers got shorter, so fixed costs weigh more; that alone is harmless."
                         : "Another program may use the machine, memory may be short, or answers "
                           "have become very unequal in length.",
                 "Look at the time per stage; a trace (trace.json) shows one step in detail."});
}

void memory(const Run& run, Findings& out) {
  const auto m = run.of(metric::kCpuMemory);
  if (!m.has_drift()) return;
  const auto& points = m.points();
  const double middle =
      m.mean(points.size() / 2 - kWindowSteps / 2, points.size() / 2 + kWindowSteps / 2);
  const bool grows = middle > 1.1 * m.first() && m.last() > 1.1 * middle;
  if (!grows || m.last() - m.first() < 0.25) return;
  out.push_back({"memory_growth", Severity::kWarning,
                 fmt::format("Memory keeps growing: {:.1f} to {:.1f} GB", m.first(), m.last()),
                 "Longer answers need more; growth without them is a leak.",
                 "Compare with the response length; a user reward in Python may keep its data."});
}

}  // namespace

const char* to_string(Severity severity) {
  switch (severity) {
    case Severity::kInfo:
      return "info";
    case Severity::kWarning:
      return "warning";
    case Severity::kProblem:
      break;
  }
  return "problem";
}

std::vector<RunFinding> diagnose(std::span<const StepRecord> records) {
  constexpr void (*kRules[])(const Run&, Findings&) = {
      not_finite,  inexact_rollout, equal_rewards, zero_std_groups,
      truncation,  aborted,         entropy,       clipping,
      kl,          gradient,        reward_course, length_drift,
      overfitting, throughput,      memory};
  const Run run{records};
  Findings findings;
  for (const auto rule : kRules) rule(run, findings);
  std::stable_sort(findings.begin(), findings.end(), [](const RunFinding& a, const RunFinding& b) {
    return static_cast<int>(a.severity) > static_cast<int>(b.severity);
  });
  return findings;
}

}  // namespace keel
