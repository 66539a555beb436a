#include "keel/observe/page/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "keel/observe/console.h"
#include "keel/observe/metric_names.h"

namespace keel::page {
namespace {

constexpr size_t kRecentSteps = 10;

struct Watched {
  const char* label;
  const char* metric;
  Better better;
};
constexpr Watched kWatched[] = {
    {"Reward", metric::kRewardMean, Better::kHigher},
    {"Score", metric::kScoreMean, Better::kHigher},
    {"Accuracy, training prompts", metric::kAccuracy, Better::kHigher},
    {"Response length (tokens)", metric::kResponseMean, Better::kNeither},
    {"Entropy (nats)", metric::kEntropy, Better::kNeither},
    {"Tokens per second", metric::kThroughput, Better::kHigher},
    {"Seconds per step", metric::kTimeStep, Better::kLower},
};

std::optional<Headline> headline(const RunData& run, const std::string& label,
                                 const std::string& name, Better better) {
  std::optional<Headline> h;
  for (const auto& record : run.records) {
    const auto v = record.get(name);
    if (!v || !std::isfinite(*v)) continue;
    if (!h) h = Headline{.label = label, .metric = name, .first = *v, .last = *v, .best = {}};
    h->last = *v;
    const bool improves = !h->best || (better == Better::kHigher ? *v > *h->best : *v < *h->best);
    if (better != Better::kNeither && improves) {
      h->best = *v;
      h->best_step = record.step();
    }
  }
  return h;
}

OrderedJson metrics_json(const RunData& run) {
  struct Values {
    std::vector<double> all;
  };
  std::vector<std::string> order;
  std::map<std::string, Values> by_name;
  for (const auto& record : run.records) {
    for (const auto& [name, value] : record.metrics()) {
      if (!std::isfinite(value)) continue;
      auto [it, is_new] = by_name.try_emplace(name);
      if (is_new) order.push_back(name);
      it->second.all.push_back(value);
    }
  }
  auto out = OrderedJson::object();
  for (const auto& name : order) {
    const auto& all = by_name[name].all;
    const auto whole = summarize(all);
    const auto recent = std::span(all).last(std::min(kRecentSteps, all.size()));
    out[name] = {{"first", all.front()},
                 {"last", all.back()},
                 {"min", whole.min},
                 {"max", whole.max},
                 {"mean_last_10", summarize(recent).mean}};
  }
  return out;
}

}  // namespace

std::vector<Headline> headlines(const RunData& run) {
  std::vector<Headline> out;
  const auto add = [&](const std::string& label, const std::string& name, Better better) {
    if (auto h = headline(run, label, name, better)) out.push_back(std::move(*h));
  };
  for (const auto& w : kWatched) {
    if (std::string_view(w.metric) == metric::kScoreMean && !has_penalties(run)) continue;
    add(w.label, w.metric, w.better);
    // Validation stands beside the accuracy of the training prompts.
    if (std::string_view(w.metric) != metric::kAccuracy) continue;
    for (const auto& name : metric_names_with(run.records, metric::kValidationPrefix)) {
      const auto shown = name.substr(std::string_view(metric::kValidationPrefix).size());
      add("Validation " + shown, name, Better::kHigher);
    }
  }
  return out;
}

bool has_penalties(const RunData& run) {
  return std::any_of(run.records.begin(), run.records.end(), [](const StepRecord& r) {
    return r.get(metric::kScoreMean) != r.get(metric::kRewardMean);
  });
}

std::optional<bool> is_exact(const RunData& run) {
  std::optional<bool> exact;
  for (const auto& record : run.records) {
    const auto v = record.get(metric::kRolloutDiffMax);
    if (v) exact = exact.value_or(true) && *v == 0;
  }
  return exact;
}

OrderedJson summary_json(const RunData& run) {
  OrderedJson out = {{"run", run.name},
                     {"steps", run.records.size()},
                     {"last_step", run.records.empty() ? 0 : run.records.back().step()},
                     {"exact", nullptr}};
  if (const auto exact = is_exact(run)) out["exact"] = *exact;
  out["metrics"] = metrics_json(run);
  out["headline"] = OrderedJson::array();
  for (const auto& h : headlines(run)) {
    OrderedJson row = {{"label", h.label}, {"metric", h.metric},   {"first", h.first},
                       {"best", nullptr},  {"best_step", nullptr}, {"last", h.last}};
    if (h.best) row["best"] = *h.best, row["best_step"] = h.best_step;
    out["headline"].push_back(row);
  }
  out["findings"] = OrderedJson::array();
  for (const auto& f : run.findings) {
    out["findings"].push_back({{"id", f.id},
                               {"severity", to_string(f.severity)},
                               {"title", f.title},
                               {"cause", f.cause},
                               {"advice", f.advice}});
  }
  return out;
}

std::string short_number(double value) {
  if (!std::isfinite(value)) return fmt::format("{}", value);
  const double size = std::abs(value);
  if (size >= 1000) return format_thousands(value);
  if (size != 0 && size < 1e-3) return fmt::format("{:.2e}", value);
  if (size >= 100) return fmt::format("{:.1f}", value);
  return fmt::format("{:.{}f}", value, size >= 10 ? 2 : 3);
}

}  // namespace keel::page
