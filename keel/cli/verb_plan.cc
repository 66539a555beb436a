#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <fstream>

#include "keel/base/error.h"
#include "keel/cli/simulate.h"
#include "keel/cli/verbs.h"
#include "keel/io/atomic_file.h"
#include "keel/sim/evaluate.h"
#include "keel/sim/plan.h"

namespace keel::cli {
namespace {

struct Options {
  std::string file, id, twin, calibration, out, model, hardware;
  int64_t devices = 0, prompts = 0, samples = 0, top = 3, seeds = 2;
  int64_t prompt_max = 0, response_max = 0;
  double prompt_mean = 0, response_mean = 0, memory_fraction = 0;
  bool ref_pass = false, old_logprob_pass = false, json = false;
};

sim::SimRun pick_run(const Options& o) {
  if (o.file.empty()) return {};
  auto runs = sim::load_runs(o.file);
  std::vector<std::string> ids;
  for (auto& run : runs) {
    if (o.id.empty() || run.id == o.id) return std::move(run);
    ids.push_back(run.id);
  }
  throw_invalid("[plan.id] expected one of {} in {}, got {}", fmt::join(ids, ", "), o.file,
                o.id.empty() ? "a file without runs" : o.id);
}

// Options given on the command line override the file's.
sim::SimRun request_run(const Options& o, sim::Catalog& catalog) {
  auto run = pick_run(o);
  if (!o.model.empty()) {
    run.model = o.model;
    if (o.model.ends_with(".json")) {
      std::ifstream in(o.model);
      KEEL_REQUIRE(in.good(), "[plan.model] expected a config.json that can be read, got {}",
                   o.model);
      catalog.models[o.model] = sim::model_from_config(Json::parse(in, nullptr, false), o.model);
    }
  }
  if (!o.hardware.empty()) run.hardware = o.hardware;
  const std::pair<int64_t, int64_t*> counts[] = {{o.devices, &run.devices},
                                                 {o.prompts, &run.workload.prompts},
                                                 {o.samples, &run.workload.samples_per_prompt},
                                                 {o.prompt_max, &run.workload.prompt_len.max},
                                                 {o.response_max, &run.workload.response_len.max}};
  for (const auto& [given, field] : counts) {
    if (given > 0) *field = given;
  }
  if (o.prompt_mean > 0) run.workload.prompt_len.mean = o.prompt_mean;
  if (o.response_mean > 0) run.workload.response_len.mean = o.response_mean;
  if (o.memory_fraction > 0) run.engine.memory_fraction = o.memory_fraction;
  run.workload.ref_pass |= o.ref_pass;
  run.workload.old_logprob_pass |= o.old_logprob_pass;
  KEEL_REQUIRE(!run.model.empty() && !run.hardware.empty(),
               "[plan] expected a run file, or --model and --hardware; see 'keel plan --help'");
  return run;
}

int plan(const Options& o) {
  auto [catalog, calibration] = load_twin(o.twin, o.calibration);
  sim::PlanRequest request;
  request.run = request_run(o, catalog);
  request.top = o.top;
  request.num_seeds = o.seeds;
  const auto result = sim::plan_layouts(request, catalog, calibration);
  if (o.json) {
    fmt::print("{}\n", sim::plan_json(result).dump());
  } else {
    fmt::print("{}", sim::plan_text(result, catalog.find_hardware(request.run.hardware)));
  }
  if (!o.out.empty()) {
    write_file_atomic(o.out, sim::plan_config(result.best.front()));
    if (!o.json) fmt::print("\nwrote {}: the first plan as a configuration\n", o.out);
  }
  return 0;
}

}  // namespace

Action define_plan(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_option("file", o->file,
                 "run to plan for (schema sim-runs/1); its layout is compared with");
  app.add_option("--id", o->id, "which run of the file (default: the first)");
  app.add_option("--model", o->model, "a name of models.yaml, or a config.json");
  app.add_option("--hardware", o->hardware, "a device of TWIN/hardware");
  app.add_option("--devices", o->devices, "dies or GPUs");
  app.add_option("--prompts", o->prompts, "prompts of a step");
  app.add_option("--samples", o->samples, "answers for each prompt");
  app.add_option("--prompt-mean", o->prompt_mean, "mean tokens of a prompt");
  app.add_option("--prompt-max", o->prompt_max, "most tokens of a prompt");
  app.add_option("--response-mean", o->response_mean, "mean tokens of an answer");
  app.add_option("--response-max", o->response_max, "most tokens of an answer");
  app.add_option("--memory-fraction", o->memory_fraction, "share of a device for the rollout");
  app.add_flag("--ref-pass", o->ref_pass, "log-probs of a reference model in each step");
  app.add_flag("--old-logprob-pass", o->old_logprob_pass, "log-probs computed again in each step");
  app.add_option("--top", o->top, "plans to print")->check(CLI::Range(1, 50));
  app.add_option("--seeds", o->seeds, "draws of response lengths for them")
      ->check(CLI::Range(1, 100));
  app.add_option("--twin", o->twin, "folder with hardware/, models.yaml and lengths.yaml");
  app.add_option("--calibration", o->calibration, "coefficients (default TWIN/calibration)");
  app.add_option("--out", o->out, "write the first plan as a configuration of keel train");
  app.add_flag("--json", o->json, "one JSON object");
  return [o] { return plan(*o); };
}

}  // namespace keel::cli
