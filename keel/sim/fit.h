// Calibration: weighted relative least squares of named coefficients on measured runs, with priors.
//
// Residual of a target: log(predicted / measured) / sigma (shares in [0, 1] whose name ends in
// _share: the difference / sigma). Unknowns are the logarithms of the free coefficients that the
// data read; each has a Gaussian prior. Levenberg-Marquardt with one-sided numeric derivatives,
// reweighted so that a residual far out counts linearly (Charbonnier loss), within bounds.
// Pure and deterministic: same runs, same coefficients, same bits.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "keel/sim/predict.h"

namespace keel::sim {

// One number to fit or to compare with: a target of a run.
struct Datum {
  const SimRun* run = nullptr;  // must outlive the fit
  std::string target;
  double measured = 0;
  double sigma = 0.05;  // relative (or absolute for shares)
};

// All targets of the runs that have a measured value. Sigma follows the confidence: high 5 %,
// medium 8 %; low is left out unless with_low.
std::vector<Datum> fit_data(std::span<const SimRun> runs, bool with_low = false);

// Predicted over measured - 1; for shares the difference.
double relative_error(const std::string& target, double predicted, double measured);

using Predictor = std::function<std::vector<Prediction>(const SimRun&, const Calibration&,
                                                        std::set<std::string>* used)>;

struct FitOptions {
  int max_iterations = 30;
  double tolerance = 1e-4;  // stop when no logarithm moves further
};

// How far the data (and not its prior) decide a coefficient.
struct Posterior {
  double sigma = 0;                                      // of log(value)
  double prior_share = 1;                                // of the information; 1 = no datum speaks
  std::vector<std::pair<std::string, double>> families;  // share of the data's information, falling
};

struct FitResult {
  Calibration calibration;
  std::map<std::string, Posterior> posterior;  // free coefficients that were read
  std::vector<double> predicted;               // as the data
  int iterations = 0;
  double cost = 0;  // half the sum of squares at the end, priors included
};

// Starts from the values in `start`; priors are its coefficients' own. Throws Error(kInvalid) if a
// target cannot be predicted or a prediction is not finite and positive.
FitResult fit_calibration(std::span<const Datum> data, const Calibration& start,
                          const Predictor& predictor, const FitOptions& options = {});

// Predictions of data that a fit did not see: each group of `groups` (indices of data) is left out
// in turn, the coefficients are solved again from `fit`, and the group is predicted. The Jacobian
// is that of the full fit; weights and step are solved anew. exact: the whole fit is repeated.
std::vector<double> predict_left_out(std::span<const Datum> data,
                                     const std::vector<std::vector<size_t>>& groups,
                                     const FitResult& fit, const Predictor& predictor,
                                     bool exact = false);

}  // namespace keel::sim
