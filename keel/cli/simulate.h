// What `keel simulate` does, without its options.
#pragma once

#include <string>
#include <vector>

#include "keel/sim/calibration.h"
#include "keel/sim/catalog.h"

namespace keel::cli {

// The project's folder `twin` (hardware, models, lengths, calibration): `asked` if not empty, else
// ./twin, else beside the program's own sources. Throws Error(kInvalid) if there is none.
std::string twin_folder(const std::string& asked);

struct Twin {
  sim::Catalog catalog;
  sim::Calibration calibration;
};
// folder as for twin_folder(); calibration: a file or folder, "" = the one in the twin's folder.
Twin load_twin(const std::string& folder, const std::string& calibration = "");

struct SimulateOptions {
  std::vector<std::string> words;  // RUN.yaml | calibrate RUNS...
  std::string runs, twin, calibration, out, id, trace;
  int seeds = 3;
  bool json = false, left_out = false, exact = false;
};

int simulate_runs(const SimulateOptions& options);    // --runs
int simulate_detail(const SimulateOptions& options);  // RUN.yaml
int simulate_fit(const SimulateOptions& options);     // calibrate RUNS...

}  // namespace keel::cli
