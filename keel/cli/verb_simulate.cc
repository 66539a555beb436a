#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "keel/base/error.h"
#include "keel/cli/simulate.h"
#include "keel/cli/verbs.h"

namespace keel::cli {
namespace {

int simulate(const SimulateOptions& o) {
  if (!o.words.empty() && o.words.front() == "calibrate") return simulate_fit(o);
  if (!o.runs.empty()) return simulate_runs(o);
  if (!o.words.empty()) return simulate_detail(o);
  throw_invalid("[simulate] expected RUN.yaml, --runs F or calibrate RUNS, got none; try --help");
}

}  // namespace

Action define_simulate(CLI::App& app) {
  auto o = std::make_shared<SimulateOptions>();
  app.add_option(
      "what", o->words,
      "RUN.yaml: in detail; or calibrate RUNS...: fit the coefficients on measured runs");
  app.add_option("--runs", o->runs,
                 "file or folder of runs: predicted beside measured, one table row per family");
  app.add_option("--calibration", o->calibration,
                 "coefficients: a file or a folder of them (default TWIN/calibration)");
  app.add_option("--twin", o->twin, "folder with hardware/, models.yaml and lengths.yaml");
  app.add_option("--out", o->out, "calibrate: file or folder to write (default: where it started)");
  app.add_option("--seeds", o->seeds, "draws of response lengths per prediction");
  app.add_option("--id", o->id, "only this run of RUN.yaml");
  app.add_option("--trace", o->trace, "RUN.yaml: file for a Chrome trace of the stages");
  app.add_flag("--json", o->json, "one JSON line per target");
  app.add_flag("--left-out", o->left_out,
               "errors also of fits without the run and without its family");
  app.add_flag("--exact", o->exact,
               "with --left-out: repeat each fit instead of one linearised step");
  return [o] { return simulate(*o); };
}

}  // namespace keel::cli
