// How ranks of one machine divide its CPUs.
#pragma once

#include <span>
#include <string>

namespace keel::parallel {

// Text that tells the other ranks where this process may run: the machine's boot id, then one
// '0'/'1' a CPU.
std::string describe_cpus();

// `places`: describe_cpus() of all ranks. Each CPU counts 1 / (ranks that may run on it); the sum
// for `rank`, rounded down, at least 1.
int cpu_share(std::span<const std::string> places, int rank);

}  // namespace keel::parallel
