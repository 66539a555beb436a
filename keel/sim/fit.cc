#include "keel/sim/fit.h"

#include <algorithm>
#include <cmath>

#include "keel/base/error.h"

namespace keel::sim {
namespace {

constexpr double kStep = 0.02;  // of a logarithm, for derivatives; above the noise of a replay

bool is_share(const std::string& target) { return target.ends_with("_share"); }

double residual(const Datum& d, double predicted) {
  if (is_share(d.target)) return (predicted - d.measured) / d.sigma;
  return std::log(predicted / d.measured) / d.sigma;
}

// Charbonnier: rho = 2 (sqrt(1 + z^2) - 1); the weight makes sqrt(w) z its Gauss-Newton residual.
double robust_weight(double z) { return 1.0 / std::sqrt(1.0 + z * z); }
double robust_cost(double z) { return std::sqrt(1.0 + z * z) - 1.0; }

using Matrix = std::vector<std::vector<double>>;

// Solves A x = b in place, A symmetric positive definite (Cholesky). False if it is not.
bool cholesky(Matrix& a) {
  const size_t n = a.size();
  for (size_t j = 0; j < n; ++j) {
    for (size_t k = 0; k < j; ++k) a[j][j] -= a[j][k] * a[j][k];
    if (!(a[j][j] > 0)) return false;
    a[j][j] = std::sqrt(a[j][j]);
    for (size_t i = j + 1; i < n; ++i) {
      for (size_t k = 0; k < j; ++k) a[i][j] -= a[i][k] * a[j][k];
      a[i][j] /= a[j][j];
    }
  }
  return true;
}

std::vector<double> solve_factored(const Matrix& l, std::vector<double> b) {
  const size_t n = l.size();
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < i; ++k) b[i] -= l[i][k] * b[k];
    b[i] /= l[i][i];
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; ++k) b[i] -= l[k][i] * b[k];
    b[i] /= l[i][i];
  }
  return b;
}

// Predicts all targets of the runs that the data name, one call per run.
class RunTable {
 public:
  explicit RunTable(std::span<const Datum> data) : data_(data) {
    for (size_t i = 0; i < data.size(); ++i) {
      const auto [it, is_new] = index_.try_emplace(data[i].run, runs_.size());
      if (is_new) runs_.push_back({data[i].run, {}, {}});
      runs_[it->second].data.push_back(i);
    }
  }

  struct Row {
    const SimRun* run;
    std::vector<size_t> data;
    std::set<std::string> used;
  };

  void predict_row(size_t row, const Calibration& c, const Predictor& predictor,
                   std::vector<double>& out, std::set<std::string>* used) const {
    const auto found = predictor(*runs_[row].run, c, used);
    for (const size_t i : runs_[row].data) {
      const auto it = std::find_if(found.begin(), found.end(), [&](const Prediction& p) {
        return p.target == data_[i].target;
      });
      KEEL_REQUIRE(
          it != found.end(),
          "[calibrate] {}: expected a target that can be predicted, got {}; try without it",
          runs_[row].run->id, data_[i].target);
      KEEL_REQUIRE(std::isfinite(it->value) && it->value > 0,
                   "[calibrate] {}: expected a positive prediction of {}, got {}; try other priors",
                   runs_[row].run->id, data_[i].target, it->value);
      out[i] = it->value;
    }
  }

  std::vector<double> predict_all(const Calibration& c, const Predictor& predictor) {
    std::vector<double> out(data_.size());
    for (size_t r = 0; r < runs_.size(); ++r) {
      predict_row(r, c, predictor, out, &runs_[r].used);
    }
    return out;
  }

  const std::vector<Row>& rows() const { return runs_; }

 private:
  std::span<const Datum> data_;
  std::map<const SimRun*, size_t> index_;
  std::vector<Row> runs_;
};

struct Unknowns {
  std::vector<std::string> keys;
  std::vector<double> prior, sigma, low, high;  // logarithms

  explicit Unknowns(const Calibration& c, const std::vector<RunTable::Row>& rows) {
    std::set<std::string> used;
    for (const auto& row : rows) used.insert(row.used.begin(), row.used.end());
    for (const auto& key : used) {
      const Coefficient* k = c.find(key);
      KEEL_CHECK(k != nullptr, "no coefficient {}", key);
      if (!k->free) continue;
      KEEL_REQUIRE(k->prior > 0 && k->prior_sigma > 0,
                   "[calibration] {}: expected a prior and its sigma above 0, got {} and {}", key,
                   k->prior, k->prior_sigma);
      keys.push_back(key);
      prior.push_back(std::log(k->prior));
      sigma.push_back(k->prior_sigma);
      const bool bounded = k->max > 0;
      low.push_back(bounded && k->min > 0 ? std::log(k->min) : -1e300);
      high.push_back(bounded ? std::log(k->max) : 1e300);
    }
  }

  std::vector<double> read(const Calibration& c) const {
    std::vector<double> x;
    for (size_t j = 0; j < keys.size(); ++j) {
      x.push_back(std::clamp(std::log(c.find(keys[j])->value), low[j], high[j]));
    }
    return x;
  }

  void write(std::span<const double> x, Calibration& c) const {
    for (size_t j = 0; j < keys.size(); ++j) c.set_value(keys[j], std::exp(x[j]));
  }
};

double total_cost(std::span<const Datum> data, std::span<const double> predicted, const Unknowns& u,
                  std::span<const double> x) {
  double cost = 0;
  for (size_t i = 0; i < data.size(); ++i) cost += robust_cost(residual(data[i], predicted[i]));
  for (size_t j = 0; j < x.size(); ++j) {
    const double z = (x[j] - u.prior[j]) / u.sigma[j];
    cost += 0.5 * z * z;
  }
  return cost;
}

// d residual / d x: [datum][unknown]; runs that do not read a coefficient are not run again.
Matrix jacobian(std::span<const Datum> data, const RunTable& table, const Unknowns& u,
                const std::vector<double>& x, const Calibration& c, const Predictor& predictor,
                std::span<const double> predicted) {
  Matrix out(data.size(), std::vector<double>(x.size(), 0.0));
  std::vector<double> moved(data.size());
  for (size_t j = 0; j < x.size(); ++j) {
    const double step = x[j] + kStep > u.high[j] ? -kStep : kStep;
    Calibration next = c;
    next.set_value(u.keys[j], std::exp(x[j] + step));
    for (size_t r = 0; r < table.rows().size(); ++r) {
      if (!table.rows()[r].used.contains(u.keys[j])) continue;
      table.predict_row(r, next, predictor, moved, nullptr);
      for (const size_t i : table.rows()[r].data) {
        out[i][j] = (residual(data[i], moved[i]) - residual(data[i], predicted[i])) / step;
      }
    }
  }
  return out;
}

struct Normal {
  Matrix a;               // J' W J + priors
  std::vector<double> g;  // gradient
};

Normal normal_equations(const Matrix& j, std::span<const double> z, std::span<const double> weight,
                        const Unknowns& u, std::span<const double> x) {
  const size_t n = x.size();
  Normal out{Matrix(n, std::vector<double>(n, 0.0)), std::vector<double>(n, 0.0)};
  for (size_t i = 0; i < z.size(); ++i) {
    for (size_t p = 0; p < n; ++p) {
      if (j[i][p] == 0) continue;
      out.g[p] += weight[i] * j[i][p] * z[i];
      for (size_t q = 0; q <= p; ++q) out.a[p][q] += weight[i] * j[i][p] * j[i][q];
    }
  }
  for (size_t p = 0; p < n; ++p) {
    const double w = 1 / (u.sigma[p] * u.sigma[p]);
    out.a[p][p] += w;
    out.g[p] += w * (x[p] - u.prior[p]);
    for (size_t q = p + 1; q < n; ++q) out.a[p][q] = out.a[q][p];
  }
  for (size_t p = 0; p < n; ++p) {
    for (size_t q = 0; q < p; ++q) out.a[q][p] = out.a[p][q];
  }
  return out;
}

std::vector<double> step_within(const Normal& normal, double damping, const Unknowns& u,
                                std::span<const double> x) {
  Matrix a = normal.a;
  for (size_t p = 0; p < a.size(); ++p) a[p][p] *= 1 + damping;
  KEEL_CHECK(cholesky(a), "normal equations are not positive definite");
  std::vector<double> d = solve_factored(a, normal.g);
  for (size_t p = 0; p < d.size(); ++p) {
    d[p] = std::clamp(x[p] - std::clamp(d[p], -0.7, 0.7), u.low[p], u.high[p]);
  }
  return d;
}

std::vector<double> residuals(std::span<const Datum> data, std::span<const double> predicted) {
  std::vector<double> z(data.size());
  for (size_t i = 0; i < z.size(); ++i) z[i] = residual(data[i], predicted[i]);
  return z;
}

std::vector<double> weights(std::span<const double> z) {
  std::vector<double> w(z.size());
  for (size_t i = 0; i < z.size(); ++i) w[i] = robust_weight(z[i]);
  return w;
}

Posterior posterior_of(size_t p, std::span<const Datum> data, const Matrix& j,
                       std::span<const double> w, const Unknowns& u, const Matrix& factor) {
  std::vector<double> unit(u.keys.size(), 0.0);
  unit[p] = 1;
  Posterior out;
  out.sigma = std::sqrt(solve_factored(factor, unit)[p]);
  out.prior_share = out.sigma * out.sigma / (u.sigma[p] * u.sigma[p]);
  std::map<std::string, double> by_family;
  double sum = 0;
  for (size_t i = 0; i < data.size(); ++i) {
    const double information = w[i] * j[i][p] * j[i][p];
    by_family[data[i].run->family] += information;
    sum += information;
  }
  for (const auto& [family, information] : by_family) {
    if (sum > 0 && information > 0.005 * sum) out.families.emplace_back(family, information / sum);
  }
  std::stable_sort(out.families.begin(), out.families.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return out;
}

}  // namespace

std::vector<Datum> fit_data(std::span<const SimRun> runs, bool with_low) {
  std::vector<Datum> out;
  for (const SimRun& run : runs) {
    const bool high = run.confidence == "high";
    if (!high && run.confidence != "medium" && !with_low) continue;
    for (const auto& target : run.targets) {
      const auto it = run.measured.find(target);
      if (it == run.measured.end()) continue;
      out.push_back({&run, target, it->second, high ? 0.05 : 0.08});
    }
  }
  return out;
}

double relative_error(const std::string& target, double predicted, double measured) {
  return is_share(target) ? predicted - measured : predicted / measured - 1;
}

FitResult fit_calibration(std::span<const Datum> data, const Calibration& start,
                          const Predictor& predictor, const FitOptions& options) {
  RunTable table(data);
  FitResult out;
  out.calibration = start;
  out.predicted = table.predict_all(out.calibration, predictor);
  const Unknowns u(start, table.rows());
  std::vector<double> x = u.read(out.calibration);
  out.cost = total_cost(data, out.predicted, u, x);
  double damping = 1e-3;
  Matrix j;
  for (bool done = false; !done && out.iterations < options.max_iterations; ++out.iterations) {
    j = jacobian(data, table, u, x, out.calibration, predictor, out.predicted);
    const auto z = residuals(data, out.predicted);
    const auto normal = normal_equations(j, z, weights(z), u, x);
    done = true;  // unless a step helps
    for (int attempt = 0; attempt < 8; ++attempt) {
      const auto next = step_within(normal, damping, u, x);
      Calibration moved = out.calibration;
      u.write(next, moved);
      auto predicted = table.predict_all(moved, predictor);
      const double cost = total_cost(data, predicted, u, next);
      if (cost < out.cost) {
        double largest = 0;
        for (size_t p = 0; p < x.size(); ++p) largest = std::max(largest, std::abs(next[p] - x[p]));
        done = largest < options.tolerance || out.cost - cost < 1e-7 * cost;
        out.cost = cost;
        out.calibration = std::move(moved);
        out.predicted = std::move(predicted);
        x = next;
        damping = std::max(damping / 8, 1e-6);
        break;
      }
      damping *= 8;
    }
  }
  const auto z = residuals(data, out.predicted);
  const auto w = weights(z);
  j = jacobian(data, table, u, x, out.calibration, predictor, out.predicted);
  auto normal = normal_equations(j, z, w, u, x);
  KEEL_CHECK(cholesky(normal.a), "normal equations are not positive definite");
  for (size_t p = 0; p < u.keys.size(); ++p) {
    out.posterior[u.keys[p]] = posterior_of(p, data, j, w, u, normal.a);
  }
  return out;
}

std::vector<double> predict_left_out(std::span<const Datum> data,
                                     const std::vector<std::vector<size_t>>& groups,
                                     const FitResult& fit, const Predictor& predictor, bool exact) {
  RunTable table(data);
  std::vector<double> out = table.predict_all(fit.calibration, predictor);
  const Unknowns u(fit.calibration, table.rows());
  const std::vector<double> x0 = u.read(fit.calibration);
  const auto z0 = residuals(data, out);
  const Matrix j = jacobian(data, table, u, x0, fit.calibration, predictor, out);
  for (const auto& group : groups) {
    Calibration moved = fit.calibration;
    std::vector<Datum> kept;
    std::vector<bool> left(data.size(), false);
    for (const size_t i : group) left[i] = true;
    if (exact) {
      for (size_t i = 0; i < data.size(); ++i) {
        if (!left[i]) kept.push_back(data[i]);
      }
      FitResult refit = fit_calibration(kept, fit.calibration, predictor);
      moved = refit.calibration;
      for (const auto& key : u.keys) {  // what only the group reads falls back to its prior
        if (!refit.posterior.contains(key)) moved.set_value(key, moved.find(key)->prior);
      }
    } else {
      std::vector<double> x = x0;
      for (int iteration = 0; iteration < 12; ++iteration) {
        std::vector<double> z = z0;
        for (size_t i = 0; i < z.size(); ++i) {
          for (size_t p = 0; p < x.size(); ++p) z[i] += j[i][p] * (x[p] - x0[p]);
        }
        auto w = weights(z);
        for (const size_t i : group) w[i] = 0;
        x = step_within(normal_equations(j, z, w, u, x), 0, u, x);
      }
      u.write(x, moved);
    }
    // Only the runs of the group, each once.
    std::vector<Datum> asked;
    for (const size_t i : group) asked.push_back(data[i]);
    RunTable asked_table(asked);
    const auto predicted = asked_table.predict_all(moved, predictor);
    for (size_t g = 0; g < group.size(); ++g) out[group[g]] = predicted[g];
  }
  return out;
}

}  // namespace keel::sim
