#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "keel/base/log.h"
#include "keel/base/thread_pool.h"
#include "keel/cli/interrupt.h"
#include "keel/cli/verbs.h"
#include "keel/parallel/group.h"
#include "keel/rl/trainer.h"

namespace keel::cli {
namespace {

int train(const std::vector<std::string>& args) {
  const ConfigArgs parts = split_config_args(args);
  rl::TrainConfig config;
  const ConfigReport report = load_config(config, read_config_input(parts.file, parts.overrides));
  report.findings.throw_if_errors();
  if (!report.findings.all().empty()) fmt::print(stderr, "{}\n", report.findings.text());
  const ConfigFields fields = config_fields(config);
  rl::TrainerHooks hooks;
  hooks.interrupted = interrupted;
  hooks.config_yaml = dump_yaml(fields);
  hooks.config_hash = config_hash(fields);
  const auto group = parallel::make_world();
  if (group->size() > 1) set_num_threads(group->suggested_threads());
  const std::string folder = rl::train(config, group, hooks);
  if (group->rank() == 0) fmt::print("{}/report.html\n", folder);
  return 0;
}

}  // namespace

Action define_train(CLI::App& app) {
  app.allow_extras();  // overrides: their own messages are better than CLI11's
  return [&app] { return train(app.remaining()); };
}

}  // namespace keel::cli
