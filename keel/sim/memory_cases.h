// Published memory facts (`schema: sim-memory/1`): inputs and expected bytes, and what the memory
// model says about them.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "keel/sim/calibration.h"
#include "keel/sim/catalog.h"

namespace keel::sim {

struct MemoryCase {
  std::string id, kind, unit, confidence, file;
  int line = 0;
  double tolerance = 0;  // relative; 0 = exact
  std::map<std::string, std::string> texts;
  std::map<std::string, double> numbers;
  std::map<std::string, bool> flags;
  // By part; a case with one number has the part "".
  std::vector<std::pair<std::string, double>> expected;
};

// Throws Error(kInvalid) with file:line and field.
std::vector<MemoryCase> load_memory_cases(const std::string& path);
std::vector<MemoryCase> parse_memory_cases(const std::string& text, const std::string& file);

// The parts of `expected` as the model computes them, in the case's unit and order; parts it cannot
// compute (a layout that is not stated) are left out. Never reads the expected values.
std::vector<std::pair<std::string, double>> predict_memory_case(const MemoryCase& memory_case,
                                                                const Catalog& catalog,
                                                                const Calibration& calibration);

}  // namespace keel::sim
