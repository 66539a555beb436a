#include "keel/cli/check_plan.h"

#include <fmt/format.h>

#include "keel/base/error.h"
#include "keel/base/json.h"
#include "keel/cli/simulate.h"
#include "keel/sim/evaluate.h"
#include "keel/sim/plan_rules.h"

namespace keel::cli {

int check_plans(const std::vector<std::string>& files, const std::string& twin, bool json) {
  const auto [catalog, calibration] = load_twin(twin);
  int64_t errors = 0, warnings = 0;
  for (const auto& file : files) {
    ConfigFindings unknown;
    for (const auto& run : sim::load_runs(file, &unknown)) {
      if (run.kind == sim::RunKind::kKernel) continue;
      for (const auto& f : sim::check_plan(run, catalog, calibration)) {
        (f.error ? errors : warnings) += 1;
        if (json) {
          fmt::print("{}\n", OrderedJson{{"id", run.id},
                                         {"level", f.error ? "error" : "warn"},
                                         {"rule", f.rule},
                                         {"file", run.file},
                                         {"line", run.line},
                                         {"field", f.field},
                                         {"message", f.message}}
                                 .dump());
        } else {
          fmt::print("{}: {}\n", f.error ? "error" : "warning", f.message);
        }
      }
    }
    if (!unknown.all().empty()) fmt::print(stderr, "{}\n", unknown.text());
  }
  if (!json) fmt::print("{} errors, {} warnings\n", errors, warnings);
  return errors == 0 ? 0 : exit_code(ErrorKind::kInvalid);
}

}  // namespace keel::cli
