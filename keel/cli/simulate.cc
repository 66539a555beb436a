#include "keel/cli/simulate.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "keel/base/error.h"
#include "keel/io/atomic_file.h"
#include "keel/sim/evaluate.h"
#include "keel/sim/step_detail.h"

namespace keel::cli {
namespace {

namespace fs = std::filesystem;

sim::Predictor predictor(const sim::Catalog& catalog, int seeds) {
  return [&catalog, seeds](const sim::SimRun& run, const sim::Calibration& c,
                           std::set<std::string>* used) {
    sim::PredictOptions options;
    options.num_seeds = seeds;
    options.used = used;
    return sim::predict(run, catalog, c, options);
  };
}

// Data of the fit; says which targets have no model.
std::vector<sim::Datum> usable_data(std::span<const sim::SimRun> runs, const sim::Calibration& c,
                                    const sim::Predictor& predict) {
  std::vector<sim::Datum> out;
  std::map<const sim::SimRun*, std::vector<sim::Prediction>> known;
  for (auto& datum : sim::fit_data(runs)) {
    auto [it, is_new] = known.try_emplace(datum.run);
    if (is_new) it->second = predict(*datum.run, c, nullptr);
    bool found = false;
    for (const auto& p : it->second) found = found || (p.target == datum.target && p.value > 0);
    if (found) {
      out.push_back(datum);
    } else {
      fmt::print(stderr, "{}: {} has no model and is left out\n", datum.run->id, datum.target);
    }
  }
  return out;
}

void add_left_out(std::span<const sim::Datum> data, const sim::FitResult& fit,
                  const sim::Predictor& predict, bool exact, std::vector<sim::Score>& scores) {
  std::map<std::string, std::vector<size_t>> runs, families;
  for (size_t i = 0; i < data.size(); ++i) {
    runs[data[i].run->id].push_back(i);
    families[data[i].run->family].push_back(i);
  }
  std::vector<std::vector<size_t>> by_run, by_family;
  for (const auto& [id, list] : runs) by_run.push_back(list);
  for (const auto& [family, list] : families) by_family.push_back(list);
  const auto run_out = sim::predict_left_out(data, by_run, fit, predict, exact);
  const auto family_out = sim::predict_left_out(data, by_family, fit, predict, exact);
  for (size_t i = 0; i < data.size(); ++i) {
    scores[i].run_out = sim::relative_error(data[i].target, run_out[i], data[i].measured);
    scores[i].family_out = sim::relative_error(data[i].target, family_out[i], data[i].measured);
  }
}

std::vector<sim::Score> scores_of(std::span<const sim::Datum> data,
                                  const std::vector<double>& predicted) {
  std::vector<sim::Score> out;
  for (size_t i = 0; i < data.size(); ++i) {
    const auto& d = data[i];
    out.push_back({d.run->id,
                   d.run->family,
                   d.target,
                   d.run->confidence,
                   d.measured,
                   predicted[i],
                   sim::relative_error(d.target, predicted[i], d.measured),
                   {},
                   {}});
  }
  return out;
}

std::string posterior_text(const sim::FitResult& fit) {
  std::string out = fmt::format("{:<58} {:>10} {:>10} {:>7} {:>7}  {}\n", "coefficient", "value",
                                "prior", "sd", "data", "fixed by");
  for (const auto& [key, p] : fit.posterior) {
    const sim::Coefficient& c = *fit.calibration.find(key);
    std::string families;
    for (const auto& [name, share] : p.families) {
      families += fmt::format("{}{} {:.0f} %", families.empty() ? "" : ", ", name, 100 * share);
    }
    out += fmt::format("{:<58} {:>10.4g} {:>10.4g} {:>6.1f}% {:>6.0f}%  {}\n", key, c.value,
                       c.prior, 100 * p.sigma, 100 * (1 - p.prior_share), families);
  }
  return out;
}

}  // namespace

std::string twin_folder(const std::string& asked) {
  std::vector<fs::path> tried;
  if (!asked.empty()) {
    tried.emplace_back(asked);
  } else {
    tried.emplace_back("twin");
    std::error_code ignored;
    for (fs::path at = fs::read_symlink("/proc/self/exe", ignored).parent_path();
         at.has_relative_path(); at = at.parent_path()) {
      tried.push_back(at / "twin");
    }
  }
  for (const auto& folder : tried) {
    if (fs::exists(folder / "models.yaml")) return folder.string();
  }
  throw_invalid(
      "[--twin] expected a folder with models.yaml, got none at {}; try the project's twin/",
      tried.front().string());
}

Twin load_twin(const std::string& folder, const std::string& calibration) {
  const std::string twin = twin_folder(folder);
  return {sim::load_catalog(twin),
          sim::load_calibrations(calibration.empty() ? twin + "/calibration" : calibration)};
}

int simulate_runs(const SimulateOptions& o) {
  const auto [catalog, calibration] = load_twin(o.twin, o.calibration);
  const auto runs = sim::load_run_files({o.runs});
  sim::PredictOptions options;
  options.num_seeds = o.seeds;
  auto scores = sim::evaluate(runs, catalog, calibration, options);
  const auto memory = sim::evaluate_memory({o.runs}, catalog, calibration);
  if (o.left_out) {
    const auto predict = predictor(catalog, o.seeds);
    const auto data = usable_data(runs, calibration, predict);
    sim::FitResult fit;
    fit.calibration = calibration;
    auto counted = scores_of(data, std::vector<double>(data.size(), 0.0));
    add_left_out(data, fit, predict, o.exact, counted);
    std::map<std::pair<std::string, std::string>, const sim::Score*> known;
    for (const auto& s : counted) known[{s.id, s.target}] = &s;
    for (auto& s : scores) {
      const auto it = known.find({s.id, s.target});
      if (it == known.end()) continue;
      s.run_out = it->second->run_out;
      s.family_out = it->second->family_out;
    }
  }
  if (o.json) {
    for (const auto& s : scores) fmt::print("{}\n", sim::score_line(s).dump());
    for (const auto& s : memory) fmt::print("{}\n", sim::score_line(s).dump());
    return 0;
  }
  if (!scores.empty()) fmt::print("{}", sim::family_table_text(sim::family_table(scores)));
  if (!memory.empty()) fmt::print("{}", sim::family_table_text(sim::family_table(memory)));
  return 0;
}

int simulate_detail(const SimulateOptions& o) {
  const auto [catalog, calibration] = load_twin(o.twin, o.calibration);
  const auto runs = sim::load_run_files(o.words);
  sim::PredictOptions options;
  options.num_seeds = o.seeds;
  bool found = false;
  for (const auto& run : runs) {
    if (!o.id.empty() && run.id != o.id) continue;
    found = true;
    const auto detail = sim::step_detail(run, catalog, calibration, options);
    if (o.json) {
      fmt::print("{}\n", sim::detail_json(run, detail).dump());
    } else {
      fmt::print("{}\n", sim::detail_text(run, detail));
    }
    if (!o.trace.empty()) write_file_atomic(o.trace, sim::detail_trace(detail).dump());
  }
  KEEL_REQUIRE(found, "[--id] expected a run of {}, got {}; try without --id", o.words.front(),
               o.id);
  return 0;
}

int simulate_fit(const SimulateOptions& o) {
  const std::string folder = twin_folder(o.twin);
  const auto catalog = sim::load_catalog(folder);
  const std::string from = o.calibration.empty() ? folder + "/calibration" : o.calibration;
  const auto start = sim::load_calibrations(from);
  const std::vector<std::string> paths(o.words.begin() + 1, o.words.end());
  KEEL_REQUIRE(!paths.empty(), "[simulate] expected run files after calibrate, got none");
  const auto runs = sim::load_run_files(paths);
  const auto predict = predictor(catalog, o.seeds);
  const auto data = usable_data(runs, start, predict);
  KEEL_REQUIRE(!data.empty(), "[simulate] expected runs of high or medium confidence, got none");
  const auto fit = sim::fit_calibration(data, start, predict);
  auto scores = scores_of(data, fit.predicted);
  if (o.left_out) add_left_out(data, fit, predict, o.exact, scores);
  fmt::print("{}\n{}", posterior_text(fit), sim::family_table_text(sim::family_table(scores)));
  const std::string out = o.out.empty() ? from : o.out;
  sim::write_calibrations(fit.calibration, from, out);
  fmt::print("{} targets, {} iterations; {}\n", data.size(), fit.iterations, out);
  return 0;
}

}  // namespace keel::cli
