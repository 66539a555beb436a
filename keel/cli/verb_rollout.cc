#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "keel/cli/interrupt.h"
#include "keel/cli/verbs.h"
#include "keel/rl/evaluate.h"

namespace keel::cli {
namespace {

struct Options {
  std::string model, data, out;
};

// The options are short names of configuration keys.
rl::TrainConfig configuration(const CLI::App& app, const Options& o, const std::string& data_key) {
  ConfigArgs parts = split_config_args(app.remaining());
  if (!o.model.empty()) parts.overrides.push_back("model.path=" + o.model);
  if (!o.data.empty()) {
    parts.overrides.push_back("data.train_files=" + o.data);
    if (data_key != "data.train_files") parts.overrides.push_back(data_key + "=" + o.data);
  }
  rl::TrainConfig config;
  const ConfigReport report = load_config(config, read_config_input(parts.file, parts.overrides));
  report.findings.throw_if_errors();
  return config;
}

void add_options(CLI::App& app, Options& o) {
  app.allow_extras();
  app.add_option("--model", o.model, "model folder, or org/name in the Hugging Face cache");
  app.add_option("--data", o.data, "file with prompts");
  app.add_option("--out", o.out, "file for the answers (JSON lines)");
}

rl::TrainerHooks hooks() {
  rl::TrainerHooks h;
  h.interrupted = interrupted;
  return h;
}

}  // namespace

Action define_rollout(CLI::App& app) {
  auto o = std::make_shared<Options>();
  add_options(app, *o);
  return [o, &app] {
    const auto config = configuration(app, *o, "data.train_files");
    fmt::print("{}\n",
               rl::run_rollout(config, hooks(), o->out.empty() ? "samples.jsonl" : o->out).dump(2));
    return 0;
  };
}

Action define_eval(CLI::App& app) {
  auto o = std::make_shared<Options>();
  add_options(app, *o);
  return [o, &app] {
    const auto config = configuration(app, *o, "data.val_files");
    fmt::print("{}\n", rl::run_eval(config, hooks(), o->out).dump(2));
    return 0;
  };
}

}  // namespace keel::cli
