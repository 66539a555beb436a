#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "keel/base/error.h"
#include "keel/cli/check_plan.h"
#include "keel/cli/verbs.h"
#include "keel/data/dataset.h"
#include "keel/reward/rules.h"
#include "keel/spec/model_dir.h"
#include "keel/spec/model_name.h"

namespace keel::cli {
namespace {

struct Options {
  std::vector<std::string> data, words;
  std::string task = "rl", ground_truth, model, twin;
  bool weights = false, json = false;
};

// Prints a finding and tells whether it is an error.
bool print(const Options& o, bool is_error, const OrderedJson& fields, const std::string& text) {
  fmt::print("{}\n",
             o.json ? fields.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) : text);
  return is_error;
}

int64_t check_data(const Options& o) {
  DataOptions options;
  options.task = parse_data_task(o.task);
  options.ground_truth_key = o.ground_truth;
  options.knows_data_source = [](const std::string& s) { return !rule_for_data_source(s).empty(); };
  int64_t errors = 0;
  for (const DataFinding& f : check_dataset(o.data, options)) {
    const bool is_error = f.level == FindingLevel::kError;
    errors += print(o, is_error,
                    {{"kind", f.kind},
                     {"level", is_error ? "error" : "warn"},
                     {"file", f.file},
                     {"line", f.line},
                     {"row", f.row},
                     {"field", f.field},
                     {"message", f.message},
                     {"suggest", f.suggest}},
                    to_string(f));
  }
  return errors;
}

int64_t check_model(const Options& o) {
  int64_t errors = 0;
  for (const Finding& f : check_model_dir(resolve_model(o.model), {true, o.weights})) {
    const bool is_error = f.level == Level::kError;
    errors += print(o, is_error,
                    {{"kind", f.kind},
                     {"level", is_error ? "error" : "warn"},
                     {"file", f.file},
                     {"item", f.item},
                     {"message", f.message}},
                    fmt::format("{}: {}", is_error ? "error" : "warning", f.line()));
  }
  return errors;
}

int run(const Options& o) {
  if (!o.words.empty()) {
    KEEL_REQUIRE(o.words.front() == "plan" && o.words.size() > 1,
                 "[check] expected plan FILE... or options, got {}; try 'keel check --help'",
                 o.words.front());
    return check_plans({o.words.begin() + 1, o.words.end()}, o.twin, o.json);
  }
  KEEL_REQUIRE(!o.data.empty() || !o.model.empty(),
               "[check] expected plan FILE, --data or --model; try 'keel check --help'");
  int64_t errors = 0;
  if (!o.data.empty()) errors += check_data(o);
  if (!o.model.empty()) errors += check_model(o);
  if (errors == 0 && !o.json) fmt::print("no errors\n");
  return errors == 0 ? 0 : exit_code(ErrorKind::kInvalid);
}

}  // namespace

Action define_check(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_option("what", o->words, "plan RUNS.yaml...: layouts that cannot work or waste time");
  app.add_option("--twin", o->twin, "plan: folder with hardware/, models.yaml and calibration/");
  app.add_option("--data", o->data, "data files to check");
  app.add_option("--task", o->task, "what they are for: rl, sft, dpo, rm or kto");
  app.add_option("--ground-truth", o->ground_truth, "column with the reference answer");
  app.add_option("--model", o->model, "model folder to check");
  app.add_flag("--weights", o->weights, "also read all weights (NaN, infinity, zeros)");
  app.add_flag("--json", o->json, "one JSON object a finding");
  return [o] { return run(*o); };
}

}  // namespace keel::cli
