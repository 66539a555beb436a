#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "keel/base/log.h"
#include "keel/cli/train_config.h"
#include "keel/cli/verbs.h"

namespace keel::cli {
namespace {

struct Options {
  bool json = false, yaml = false, list = false;
};

// For people: a heading for each section, then value, origin, type and help of each key.
void print_table(const ConfigFields& fields, const std::vector<ConfigOption>& options) {
  std::string section = "?";
  for (const ConfigOption& o : options) {
    const size_t dot = o.path.rfind('.');
    if (o.path.substr(0, dot) != section) {
      section = o.path.substr(0, dot);
      for (const ConfigSection& s : fields.sections()) {
        if (s.path == section) fmt::print("\n{}: {}\n", s.path, s.help);
      }
    }
    const std::string origin = o.origin == "default" ? "" : " (" + o.origin + ")";
    fmt::print("  {} = {}{}\n      {}; {}\n", o.path.substr(dot + 1), o.value, origin, o.help,
               o.type);
  }
}

void print_json(const std::vector<ConfigOption>& options, const std::string& hash) {
  OrderedJson out = {{"hash", hash}, {"options", OrderedJson::array()}};
  for (const ConfigOption& o : options) {
    out["options"].push_back({{"key", o.path},
                              {"value", o.value},
                              {"default", o.fallback},
                              {"origin", o.origin},
                              {"type", o.type},
                              {"help", o.help}});
  }
  fmt::print("{}\n", out.dump(2));
}

// A missing model is no fault of somebody who only looks at the options.
ConfigFindings without_missing(const ConfigFindings& findings) {
  ConfigFindings out;
  for (const ConfigFinding& f : findings.all()) {
    if (f.kind != "missing_key") out.add(f);
  }
  return out;
}

int show(const Options& options, const std::vector<std::string>& args) {
  const ConfigArgs parts = split_config_args(args);
  TrainConfig config;
  const ConfigReport report = load_config(config, read_config_input(parts.file, parts.overrides));
  const ConfigFindings findings =
      parts.file.empty() ? without_missing(report.findings) : report.findings;
  findings.throw_if_errors();
  if (!findings.all().empty()) fmt::print(stderr, "{}\n", findings.text());
  const ConfigFields fields = config_fields(config);
  const auto list = config_options(config, report.origins);
  if (options.list) {
    for (const ConfigOption& o : list) {
      fmt::print("{} = {} # {}; {}\n", o.path, o.fallback, o.help, o.type);
    }
  } else if (options.yaml) {
    fmt::print("{}", dump_yaml(fields));
  } else if (options.json) {
    print_json(list, config_hash(fields));
  } else {
    print_table(fields, list);
  }
  return 0;
}

}  // namespace

Action define_config(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.allow_extras();  // overrides: their own messages are better than CLI11's
  app.add_flag("--json", options->json, "as JSON");
  app.add_flag("--yaml", options->yaml, "the values only, as a configuration file");
  app.add_flag("--list", options->list, "one line a key with its default");
  return [options, &app] { return show(*options, app.remaining()); };
}

}  // namespace keel::cli
