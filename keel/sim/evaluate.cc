#include "keel/sim/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "keel/base/error.h"
#include "keel/io/atomic_file.h"
#include "keel/sim/input/fields.h"
#include "keel/sim/memory_cases.h"

namespace keel::sim {
namespace {

bool counts(const Score& s) {
  return s.error && (s.confidence == "high" || s.confidence == "medium");
}

FamilyScore summarize(const std::string& name, const std::vector<const Score*>& scores) {
  FamilyScore row;
  row.family = name;
  std::vector<double> in, run_out, family_out;
  for (const Score* s : scores) {
    in.push_back(std::abs(*s->error));
    if (s->run_out) run_out.push_back(std::abs(*s->run_out));
    if (s->family_out) family_out.push_back(std::abs(*s->family_out));
  }
  row.num_scored = static_cast<int64_t>(in.size());
  row.median = quantile(in, 0.5);
  row.p90 = quantile(in, 0.9);
  if (!run_out.empty()) {
    row.run_out_median = quantile(run_out, 0.5);
    row.run_out_p90 = quantile(run_out, 0.9);
  }
  if (!family_out.empty()) {
    row.family_out_median = quantile(family_out, 0.5);
    row.family_out_p90 = quantile(family_out, 0.9);
  }
  return row;
}

std::string percent(const std::optional<double>& v) {
  return v ? fmt::format("{:.1f}", 100 * *v) : "-";
}

std::vector<std::string> yaml_files(const std::string& path) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(path)) return {path};
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator(path)) {
    if (entry.path().extension() == ".yaml") out.push_back(entry.path().string());
  }
  std::sort(out.begin(), out.end());
  KEEL_REQUIRE(!out.empty(), "[{}] expected *.yaml files, got none; try another folder", path);
  return out;
}

bool is_memory_file(const std::string& path) {
  return read_input_text(path).find("schema: sim-memory/1") < 200;
}

}  // namespace

double quantile(std::vector<double> v, double q) {
  KEEL_CHECK(!v.empty(), "quantile of nothing");
  std::sort(v.begin(), v.end());
  const double at = q * static_cast<double>(v.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, v.size() - 1);
  return v[low] + (at - static_cast<double>(low)) * (v[high] - v[low]);
}

std::vector<Score> evaluate(std::span<const SimRun> runs, const Catalog& catalog,
                            const Calibration& calibration, const PredictOptions& options) {
  std::vector<Score> out;
  for (const SimRun& run : runs) {
    for (const auto& p : predict(run, catalog, calibration, options)) {
      Score s{run.id, run.family, p.target, run.confidence, {}, p.value, {}, {}, {}};
      if (const auto it = run.measured.find(p.target); it != run.measured.end()) {
        s.measured = it->second;
        s.error = relative_error(p.target, p.value, it->second);
      }
      out.push_back(std::move(s));
    }
  }
  return out;
}

OrderedJson score_line(const Score& s) {
  OrderedJson line;
  line["id"] = s.id;
  line["family"] = s.family;
  line["target"] = s.target;
  line["measured"] = s.measured ? OrderedJson(*s.measured) : OrderedJson(nullptr);
  line["predicted"] = s.predicted;
  line["error"] = s.error ? OrderedJson(*s.error) : OrderedJson(nullptr);
  line["confidence"] = s.confidence;
  if (s.run_out) line["run_out_error"] = *s.run_out;
  if (s.family_out) line["family_out_error"] = *s.family_out;
  return line;
}

std::vector<FamilyScore> family_table(std::span<const Score> scores) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<const Score*>> by_family;
  std::vector<const Score*> all;
  for (const Score& s : scores) {
    if (!counts(s)) continue;
    auto& list = by_family[s.family];
    if (list.empty()) order.push_back(s.family);
    list.push_back(&s);
    all.push_back(&s);
  }
  std::vector<FamilyScore> out;
  for (const auto& family : order) out.push_back(summarize(family, by_family[family]));
  if (!all.empty()) out.push_back(summarize("all", all));
  return out;
}

std::string family_table_text(std::span<const FamilyScore> rows) {
  std::string out = fmt::format("{:<20} {:>7} {:>15} {:>15} {:>15}\n", "absolute error, %",
                                "targets", "median / p90", "run left out", "family left out");
  for (const auto& r : rows) {
    const auto pair = [](const std::optional<double>& a, const std::optional<double>& b) {
      return percent(a) + " / " + percent(b);
    };
    out += fmt::format("{:<20} {:>7} {:>15} {:>15} {:>15}\n", r.family, r.num_scored,
                       pair(r.median, r.p90), pair(r.run_out_median, r.run_out_p90),
                       pair(r.family_out_median, r.family_out_p90));
  }
  return out;
}

std::vector<SimRun> load_run_files(const std::vector<std::string>& paths) {
  std::vector<SimRun> out;
  for (const auto& path : paths) {
    for (const auto& file : yaml_files(path)) {
      if (is_memory_file(file)) continue;
      auto runs = load_runs(file);
      std::move(runs.begin(), runs.end(), std::back_inserter(out));
    }
  }
  return out;
}

std::vector<Score> evaluate_memory(const std::vector<std::string>& paths, const Catalog& catalog,
                                   const Calibration& calibration) {
  std::vector<Score> out;
  for (const auto& path : paths) {
    for (const auto& file : yaml_files(path)) {
      if (!is_memory_file(file)) continue;
      for (const auto& c : load_memory_cases(file)) {
        const std::map<std::string, double> expected(c.expected.begin(), c.expected.end());
        for (const auto& [part, value] : predict_memory_case(c, catalog, calibration)) {
          const double measured = expected.at(part);
          Score s;
          s.id = c.id;
          s.family = "memory";
          s.target = part.empty() ? c.kind : c.kind + "." + part;
          s.confidence = c.confidence;
          s.measured = measured;
          s.predicted = value;
          s.error = value / measured - 1;
          out.push_back(std::move(s));
        }
      }
    }
  }
  return out;
}

Calibration load_calibrations(const std::string& path) {
  Calibration out;
  for (const auto& file : yaml_files(path)) {
    const Calibration part = load_calibration(file);
    for (const auto& [key, c] : part.all()) out.set(c);
  }
  return out;
}

void write_calibrations(const Calibration& calibration, const std::string& from,
                        const std::string& to) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(to)) {
    write_file_atomic(to, to_yaml(calibration));
    return;
  }
  for (const auto& file : yaml_files(from)) {
    Calibration part;
    const Calibration before = load_calibration(file);
    for (const auto& [key, c] : before.all()) part.set(*calibration.find(key));
    write_file_atomic((fs::path(to) / fs::path(file).filename()).string(), to_yaml(part));
  }
}

}  // namespace keel::sim
