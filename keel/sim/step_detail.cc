#include "keel/sim/step_detail.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace keel::sim {
namespace {

bool is_seconds(const Prediction& p) { return p.target.ends_with("_s"); }

double value_of(const std::vector<Prediction>& all, const std::string& target) {
  for (const auto& p : all) {
    if (p.target == target) return p.value;
  }
  return 0;
}

struct Switch {
  const char* name;
  std::function<std::string(SimRun&)> flip;  // turns it and says how
};

std::string flip_bool(bool& value) {
  value = !value;
  return value ? "off -> on" : "on -> off";
}

std::string flip_text(std::string& value, const std::string& a, const std::string& b) {
  const std::string before = value;
  value = value == a ? b : a;
  return before + " -> " + value;
}

const std::vector<Switch>& switches() {
  static const std::vector<Switch> kSwitches = {
      {"prompt order",
       [](SimRun& r) { return flip_text(r.engine.prompt_order, "interleaved", "grouped"); }},
      {"graph buckets",
       [](SimRun& r) {
         const bool many = r.engine.graph_sizes.size() > 1;
         r.engine.graph_sizes = {r.engine.max_num_seqs};
         for (int64_t n = r.engine.max_num_seqs / 2; !many && n >= 4; n /= 2) {
           r.engine.graph_sizes.push_back(n);
         }
         return std::string(many ? "several -> one" : "one -> several");
       }},
      {"attention balance",
       [](SimRun& r) { return flip_text(r.engine.attention_split, "balanced", "by_count"); }},
      {"collector off and cores pinned",
       [](SimRun& r) {
         r.engine.cpu_pinned = !r.engine.gc_off;
         return flip_bool(r.engine.gc_off);
       }},
      {"rollout rebalance", [](SimRun& r) { return flip_bool(r.engine.rebalance); }},
      {"expert overlap", [](SimRun& r) { return flip_bool(r.train.ep_overlap); }},
      {"recomputation",
       [](SimRun& r) {
         const std::string before = r.train.recompute.empty() ? "none" : r.train.recompute;
         r.train.recompute = before == "none" ? "full" : "none";
         return before + " -> " + r.train.recompute;
       }},
      {"reference pass", [](SimRun& r) { return flip_bool(r.workload.ref_pass); }},
      {"old log-prob pass", [](SimRun& r) { return flip_bool(r.workload.old_logprob_pass); }},
  };
  return kSwitches;
}

}  // namespace

StepDetail step_detail(const SimRun& run, const Catalog& catalog, const Calibration& calibration,
                       const PredictOptions& options) {
  StepDetail out;
  out.predictions = predict(run, catalog, calibration, options);
  double longest = 0;
  for (const auto& p : out.predictions) {
    if (!is_seconds(p) || p.value <= longest) continue;
    longest = p.value;
    out.switch_target = p.target;
  }
  if (out.switch_target.empty()) return out;
  for (const Switch& s : switches()) {
    SimRun changed = run;
    SwitchGain gain{s.name, s.flip(changed), longest, 0};
    gain.after = value_of(predict(changed, catalog, calibration, options), out.switch_target);
    if (std::abs(gain.after / gain.before - 1) > 1e-3) out.switches.push_back(std::move(gain));
  }
  std::stable_sort(out.switches.begin(), out.switches.end(),
                   [](const auto& a, const auto& b) { return a.after < b.after; });
  return out;
}

OrderedJson detail_json(const SimRun& run, const StepDetail& detail) {
  OrderedJson out;
  out["id"] = run.id;
  out["predictions"] = OrderedJson::array();
  for (const auto& p : detail.predictions) {
    OrderedJson one{{"target", p.target}, {"predicted", p.value}, {"spread", p.spread}};
    if (const auto it = run.measured.find(p.target); it != run.measured.end()) {
      one["measured"] = it->second;
    }
    one["parts"] = OrderedJson::object();
    for (const auto& [name, value] : p.parts) one["parts"][name] = value;
    out["predictions"].push_back(std::move(one));
  }
  out["switches"] = OrderedJson::array();
  for (const auto& s : detail.switches) {
    out["switches"].push_back({{"name", s.name},
                               {"setting", s.setting},
                               {"target", detail.switch_target},
                               {"before_s", s.before},
                               {"after_s", s.after}});
  }
  return out;
}

std::string detail_text(const SimRun& run, const StepDetail& detail) {
  std::string out = fmt::format("{} ({}, {} x {})\n", run.id, run.model, run.devices, run.hardware);
  for (const auto& p : detail.predictions) {
    out += fmt::format("{:<28} {:>12.4g}", p.target, p.value);
    if (const auto it = run.measured.find(p.target); it != run.measured.end()) {
      out += fmt::format("   measured {:.4g} ({:+.1f} %)", it->second,
                         100 * (p.value / it->second - 1));
    }
    if (p.spread > 0) out += fmt::format("   spread {:.3g}", p.spread);
    out += "\n";
    double sum = 0;
    for (const auto& [name, value] : p.parts) sum += value;
    for (const auto& [name, value] : p.parts) {
      if (value > 0.001 * sum) {
        out += fmt::format("  {:<26} {:>12.4g} {:>6.1f} %\n", name, value, 100 * value / sum);
      }
    }
  }
  for (const auto& s : detail.switches) {
    out += fmt::format("{:<32} {:<28} {} {:+.1f} %\n", s.name, s.setting, detail.switch_target,
                       100 * (s.after / s.before - 1));
  }
  return out;
}

OrderedJson detail_trace(const StepDetail& detail) {
  OrderedJson events = OrderedJson::array();
  int row = 0;
  for (const auto& p : detail.predictions) {
    if (!is_seconds(p)) continue;
    events.push_back({{"name", "thread_name"},
                      {"ph", "M"},
                      {"pid", 0},
                      {"tid", row},
                      {"args", {{"name", p.target}}}});
    double at = 0;
    for (const auto& [name, seconds] : p.parts) {
      if (seconds <= 0) continue;
      events.push_back({{"name", name},
                        {"ph", "X"},
                        {"pid", 0},
                        {"tid", row},
                        {"ts", at * 1e6},
                        {"dur", seconds * 1e6}});
      at += seconds;
    }
    ++row;
  }
  return {{"traceEvents", std::move(events)}};
}

}  // namespace keel::sim
