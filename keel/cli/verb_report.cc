#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "keel/cli/verbs.h"
#include "keel/observe/report.h"

namespace keel::cli {
namespace {

struct Options {
  std::string run;
  bool json = false, markdown = false;
};

int show(const Options& o) {
  if (o.json) {
    fmt::print("{}\n", summarize_run(o.run).dump(2));
  } else if (o.markdown) {
    fmt::print("{}", report_markdown(summarize_run(o.run)));
  } else {
    fmt::print("{}\n", write_report(o.run));
  }
  return 0;
}

}  // namespace

Action define_report(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_option("run", o->run, "run folder, e.g. runs/smollm2_arithmetic")->required();
  app.add_flag("--json", o->json, "a summary for scripts on standard output, no page");
  app.add_flag("--markdown", o->markdown, "the headline numbers and findings as Markdown, no page");
  return [o] { return show(*o); };
}

}  // namespace keel::cli
