#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <map>

#include "keel/cli/balance_cases.h"
#include "keel/cli/case_lines.h"
#include "keel/cli/verbs.h"

namespace keel::cli {
namespace {

struct Options {
  std::string kind, cases = "-";
  bool json = false;
};

struct Mean {
  int64_t count = 0;
  double ratio = 0, us = 0;
};

}  // namespace

Action define_balance(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_option("kind", o->kind, "one of " + balance_kinds())->required();
  app.add_option("--cases", o->cases,
                 "JSON lines of that kind -> {\"id\",\"mode\",\"plan\",\"score\",\"ratio\",\"us\"} "
                 "for each mode; - = standard input");
  app.add_flag("--json", o->json, "only the lines: no means on standard error");
  return [o] {
    const BalanceRunner run = balance_runner(o->kind);
    std::map<std::string, Mean> means;
    const int code = for_each_case_rows(o->cases, [&](const OrderedJson& row) {
      auto lines = run(row);
      for (const auto& line : lines) {
        if (!line.contains("ratio")) continue;
        Mean& mean = means[line["mode"].get<std::string>()];
        ++mean.count;
        mean.ratio += line["ratio"].get<double>();
        mean.us += line["us"].get<double>();
      }
      return lines;
    });
    for (const auto& [mode, m] : means) {
      if (o->json) break;
      const auto n = static_cast<double>(m.count);
      fmt::print(stderr, "{} {}: {} cases, mean ratio {:.4f}, mean {:.0f} us\n", o->kind, mode,
                 m.count, m.ratio / n, m.us / n);
    }
    return code;
  };
}

}  // namespace keel::cli
