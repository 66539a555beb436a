// What this machine has, as data: `keel doctor` prints it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace keel::cli {

struct Fact {
  enum class State { kGood, kWarning, kBad };
  State state = State::kGood;
  std::string name;   // "memory"
  std::string value;  // "15.6 GiB, 12.1 GiB available"
  std::string hint;   // what to do; "" = nothing
};

// Processor, memory, disk under `run_dir`, libraries, Python, model cache, and what follows from
// them. Takes well under a second; starts `python3 --version` once.
std::vector<Fact> examine_machine(const std::string& run_dir);

// Bytes of memory that this process may use: of the machine or of its cgroup, the smaller.
int64_t usable_memory_bytes();

// The version that `python3 --version` prints ("3.11.2"), "" if there is none.
std::string python_version();

// "1.5 GiB"
std::string format_bytes(double bytes);

}  // namespace keel::cli
