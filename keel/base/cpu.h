// What the host CPU offers, and the floating-point mode that exact results need.
#pragma once

#include <cstdint>
#include <string>

namespace keel {

// CPUs that this process may run on (affinity mask), at least 1.
int num_allowed_cpus();

// "AMD EPYC-Milan", from /proc/cpuinfo; "unknown" if absent.
std::string cpu_model_name();

// Flush-to-zero and denormals-are-zero on the calling thread; every compute thread calls it.
void set_flush_denormals();

// Resident set of this process now and at its peak, in bytes (0 if /proc is absent).
int64_t resident_bytes();
int64_t peak_resident_bytes();

}  // namespace keel
