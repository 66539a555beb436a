#include <CLI/CLI.hpp>

#include "keel/cli/case_lines.h"
#include "keel/cli/verbs.h"
#include "keel/reward/rules.h"

namespace keel::cli {
namespace {

struct Options {
  std::string rule, cases = "-";
};

}  // namespace

Action define_score(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_option("--rule", o->rule,
                 "last_number, gsm8k_strict, gsm8k_flexible, math_boxed, math_equiv, dapo, choice, "
                 "exact_match or format")
      ->required();
  app.add_option("--cases", o->cases,
                 "JSON lines {\"answer\",\"ground_truth\"} -> {\"score\"}; - = standard input");
  return [o] {
    require_rule(o->rule);
    return for_each_case(o->cases, [&](const OrderedJson& row) {
      return OrderedJson(run_score_case(o->rule, row));
    });
  };
}

}  // namespace keel::cli
