// Predictions beside what was measured: one score per target, and a table per family.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "keel/base/json.h"
#include "keel/sim/fit.h"
#include "keel/sim/predict.h"

namespace keel::sim {

struct Score {
  std::string id, family, target, confidence;
  std::optional<double> measured;  // absent: a planned run
  double predicted = 0;
  std::optional<double> error;    // predicted / measured - 1; the difference for shares
  std::optional<double> run_out;  // the same from a fit that did not see this run
  std::optional<double> family_out;
};

// In the order of the runs and their targets; targets that cannot be predicted are left out.
std::vector<Score> evaluate(std::span<const SimRun> runs, const Catalog& catalog,
                            const Calibration& calibration, const PredictOptions& options = {});

// The published memory facts (schema sim-memory/1) among the files of `paths`: family "memory",
// target = kind, with the part where a case has several.
std::vector<Score> evaluate_memory(const std::vector<std::string>& paths, const Catalog& catalog,
                                   const Calibration& calibration);

// {"id","family","target","measured","predicted","error","confidence"}, absent values are null; and
// "run_out_error", "family_out_error" where they were computed.
OrderedJson score_line(const Score& score);

struct FamilyScore {
  std::string family;  // "all" for the last row
  int64_t num_scored = 0;
  double median = 0, p90 = 0;  // of absolute errors
  std::optional<double> run_out_median, run_out_p90, family_out_median, family_out_p90;
};
// Families in order of appearance; only scores of high and medium confidence count.
std::vector<FamilyScore> family_table(std::span<const Score> scores);
std::string family_table_text(std::span<const FamilyScore> rows);

// Quantile of sorted values by linear interpolation between order statistics; values not empty.
double quantile(std::vector<double> values, double q);

// Every *.yaml of a folder (sorted by name) or one file: runs, and coefficients read over each
// other. Throws Error(kInvalid) if there is none.
// Memory facts among them are passed over.
std::vector<SimRun> load_run_files(const std::vector<std::string>& paths);
Calibration load_calibrations(const std::string& path);
// Writes the values of `calibration` to `to`: a file gets all of it, a folder (which must exist) a
// file for each of the folder `from` with the coefficients of that one.
void write_calibrations(const Calibration& calibration, const std::string& from,
                        const std::string& to);

}  // namespace keel::sim
