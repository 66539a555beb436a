#include "keel/observe/page/charts.h"

#include <algorithm>
#include <cmath>

#include "keel/observe/console.h"
#include "keel/observe/metric_names.h"
#include "keel/observe/page/summary.h"

namespace keel::page {
namespace {

constexpr size_t kMaxPoints = 1000;

struct Curve {
  std::string label, metric;
  const char* role = "";
};
struct ChartSpec {
  const char* title;
  const char* help;
  const char* unit;
  std::vector<Curve> curves;
};

// What is drawn: every stride-th record and the last one.
std::vector<const StepRecord*> thinned(const RunData& run, size_t stride) {
  std::vector<const StepRecord*> kept;
  for (size_t i = 0; i < run.records.size(); ++i) {
    if (i % stride == 0 || i + 1 == run.records.size()) kept.push_back(&run.records[i]);
  }
  return kept;
}

using Records = std::vector<const StepRecord*>;

OrderedJson values_of(const Records& records, const std::string& name, bool& any) {
  auto values = OrderedJson::array();
  for (const auto* record : records) {
    const auto v = record->get(name);
    const bool finite = v && std::isfinite(*v);
    any |= finite;
    values.push_back(finite ? OrderedJson(*v) : OrderedJson(nullptr));
  }
  return values;
}

void add_chart(OrderedJson& charts, const Records& records, const ChartSpec& spec,
               const char* kind) {
  auto series = OrderedJson::array();
  for (const auto& curve : spec.curves) {
    bool any = false;
    auto values = values_of(records, curve.metric, any);
    if (!any) continue;
    OrderedJson s = {{"label", curve.label}, {"metric", curve.metric}, {"values", values}};
    if (curve.role[0] != 0) s["role"] = curve.role;
    series.push_back(s);
  }
  if (series.empty()) return;
  charts.push_back({{"title", spec.title},
                    {"help", spec.help},
                    {"kind", kind},
                    {"unit", spec.unit},
                    {"series", series}});
}

std::string after_prefix(const std::string& name, std::string_view prefix) {
  return name.substr(prefix.size());
}

ChartSpec accuracy_chart(const RunData& run) {
  ChartSpec spec = {"Accuracy", "Training prompts as sampled, and validation when it ran.", "", {}};
  spec.curves.push_back({"training", metric::kAccuracy});
  for (const auto& name : metric_names_with(run.records, metric::kValidationPrefix)) {
    spec.curves.push_back({after_prefix(name, metric::kValidationPrefix), name, "points"});
  }
  return spec;
}

ChartSpec stage_chart(const RunData& run) {
  ChartSpec spec = {"Time per stage", "Where the seconds of a step go.", "s", {}};
  for (const auto& name : metric_names_with(run.records, metric::kTimingPrefix)) {
    // Not parts of the step's time: the whole, and maxima over ranks.
    if (name == metric::kTimeStep || name.ends_with("_max")) continue;
    spec.curves.push_back({after_prefix(name, metric::kTimingPrefix), name});
  }
  return spec;
}

// The newest histogram of the response length, as bars.
void add_length_histogram(OrderedJson& charts, const RunData& run) {
  const auto it = std::find_if(run.records.rbegin(), run.records.rend(), [](const StepRecord& r) {
    return r.histogram(metric::kResponseLength) != nullptr;
  });
  if (it == run.records.rend()) return;
  const auto& h = *it->histogram(metric::kResponseLength);
  auto labels = OrderedJson::array();
  for (size_t i = 0; i < h.counts.size(); ++i) {
    // The whole numbers inside the bin.
    const auto low = format_thousands(std::ceil(h.edges[i]));
    const auto high = format_thousands(std::floor(h.edges[i + 1]));
    labels.push_back(low == high ? low : low + "–" + high);
  }
  const auto title = "Response lengths of step " + std::to_string(it->step());
  charts.push_back({{"title", title},
                    {"help", "Answers per length in tokens."},
                    {"kind", "bars"},
                    {"unit", "answers"},
                    {"labels", labels},
                    {"series", {{{"label", "answers"}, {"values", h.counts}}}}});
}

std::vector<ChartSpec> policy_charts() {
  using namespace metric;
  return {
      {"Entropy",
       "Nats per token; near zero means that the policy no longer explores.",
       "nats",
       {{"entropy", kEntropy}}},
      {"KL",
       "How far the policy is from the reference model and from the one that sampled.",
       "nats",
       {{"to the reference", kKlLoss}, {"of the update", kPpoKl}}},
      {"Rollout against training",
       "Difference of token probabilities; 0 = bit-exact.",
       "",
       {{"largest", kRolloutDiffMax}, {"mean", kRolloutDiffMean}}},
      {"Groups and clipping",
       "Shares: groups without gradient, clipped tokens, cut answers.",
       "",
       {{"groups with equal rewards", kZeroStdGroups},
        {"clipped tokens", kClipFraction},
        {"answers cut at the limit", kResponseClip}}},
      {"Gradient norm", "Before clipping.", "", {{"gradient norm", kGradNorm}}},
      {"Learning rate", "As used by the step.", "", {{"learning rate", kLearningRate}}},
  };
}

}  // namespace

OrderedJson chart_data(const RunData& run) {
  using namespace metric;
  const size_t stride = std::max<size_t>(1, (run.records.size() + kMaxPoints - 1) / kMaxPoints);
  const auto records = thinned(run, stride);
  auto steps = OrderedJson::array(), charts = OrderedJson::array();
  for (const auto* record : records) steps.push_back(record->step());

  ChartSpec reward = {
      "Reward",
      "Mean of the step's answers; the band spans lowest to highest.",
      "",
      {{"lowest", kRewardMin, "low"}, {"highest", kRewardMax, "high"}, {"mean", kRewardMean}}};
  if (has_penalties(run)) reward.curves.push_back({"score, mean", kScoreMean});
  add_chart(charts, records, reward, "line");
  add_chart(charts, records, accuracy_chart(run), "line");
  add_chart(charts, records,
            {"Response length",
             "Tokens; the band holds the middle four fifths of the answers.",
             "tokens",
             {{"10 %", kResponseP10, "low"},
              {"90 %", kResponseP90, "high"},
              {"median", kResponseP50},
              {"mean", kResponseMean},
              {"longest", kResponseMax}}},
            "line");
  add_length_histogram(charts, run);
  for (const auto& spec : policy_charts()) add_chart(charts, records, spec, "line");
  add_chart(charts, records, stage_chart(run), "stack");
  add_chart(charts, records,
            {"Tokens per second",
             "All tokens of the step over its time, and generation alone.",
             "tok/s",
             {{"step", kThroughput}, {"generation", kGenThroughput}}},
            "line");
  add_chart(charts, records,
            {"Memory",
             "Of the process and, where there is one, of the device.",
             "GB",
             {{"process", kCpuMemory}, {"device", kDeviceMemory}}},
            "line");
  return {{"steps", steps}, {"thinned", stride}, {"charts", charts}};
}

}  // namespace keel::page
