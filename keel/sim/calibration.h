// Named coefficients: what hardware files cannot tell (attainable shares, latencies, overheads).
// Each belongs to a device, a software stack (with version) or a kernel, never to a run.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace keel::sim {

// The owner is one of "device:<id>", "vendor:<vendor>", "stack:<name>", "stack:<name>@<version>",
// "kernel:<name>" or "any".
struct Coefficient {
  std::string owner;
  std::string name;          // "gemm_efficiency"
  std::string unit;          // "1", "s", "byte/s"
  double value = 0;          // > 0: the fit works on logarithms
  double prior = 0;          // best guess before any run
  double prior_sigma = 0.3;  // of log(value / prior)
  double min = 0, max = 0;   // bounds where max > 0
  bool free = true;          // false: taken from its source, never fitted
  std::string source;        // where the prior is from, or "fit"
  std::string help;          // what it means
  std::string key() const { return owner + "/" + name; }
};

class Calibration {
 public:
  // Replaces an entry with the same key.
  void set(Coefficient coefficient);
  const Coefficient* find(std::string_view key) const;
  void set_value(const std::string& key, double value);  // the key must exist
  const std::map<std::string, Coefficient, std::less<>>& all() const { return all_; }

  // The first owner of `owners` that has `name`; throws Error(kInvalid) if none has. The key found
  // is added to *used if used is set.
  double value(const std::vector<std::string>& owners, std::string_view name,
               std::set<std::string>* used = nullptr) const;

 private:
  std::map<std::string, Coefficient, std::less<>> all_;
};

// `schema: sim-calibration/1`; several files may be read over each other.
Calibration load_calibration(const std::string& path);
Calibration parse_calibration(const std::string& text, const std::string& file_name);
std::string to_yaml(const Calibration& calibration);

// The coefficients as one run sees them: owners from special to general (kernels asked for by name,
// stack with version, stack, device, vendor, any).
class Coefficients {
 public:
  // stack and version may be "".
  Coefficients(const Calibration& calibration, const std::string& device, const std::string& vendor,
               const std::string& stack, const std::string& version,
               std::set<std::string>* used = nullptr);
  double operator()(std::string_view name) const;
  double kernel(const std::string& kernel, std::string_view name) const;  // kernel first

 private:
  const Calibration* calibration_;  // must outlive this
  std::vector<std::string> owners_;
  std::set<std::string>* used_;
};

}  // namespace keel::sim
