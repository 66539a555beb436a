#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "keel/base/json.h"
#include "keel/cli/doctor.h"
#include "keel/cli/verbs.h"

namespace keel::cli {
namespace {

struct Options {
  bool json = false;
  std::string run_dir = "runs";
};

const char* word(Fact::State state) {
  switch (state) {
    case Fact::State::kGood:
      return "ok";
    case Fact::State::kWarning:
      return "note";
    case Fact::State::kBad:
      return "BAD";
  }
  return "";
}

int examine(const Options& options) {
  const std::vector<Fact> facts = examine_machine(options.run_dir);
  if (options.json) {
    OrderedJson out = OrderedJson::array();
    for (const Fact& f : facts) {
      out.push_back(
          {{"name", f.name}, {"state", word(f.state)}, {"value", f.value}, {"hint", f.hint}});
    }
    fmt::print("{}\n", out.dump(2));
  } else {
    for (const Fact& f : facts) {
      fmt::print("{:<5} {:<12} {}\n", word(f.state), f.name, f.value);
      if (!f.hint.empty()) fmt::print("{:<18} -> {}\n", "", f.hint);
    }
  }
  const bool bad = std::any_of(facts.begin(), facts.end(),
                               [](const Fact& f) { return f.state == Fact::State::kBad; });
  return bad ? 3 : 0;
}

}  // namespace

Action define_doctor(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_flag("--json", options->json, "as JSON");
  app.add_option("--run-dir", options->run_dir, "folder that runs are to be written to");
  return [options] { return examine(*options); };
}

}  // namespace keel::cli
