// The instruction set that the SIMD kernels run on. It is part of the numerics id: AVX2, AVX-512
// and NEON give equal bits; SSE4 and scalar have no fused multiply-add and do not.
#pragma once

#include <string>
#include <vector>

namespace keel::ops {

// Names that this machine can run, best first: "AVX3" (AVX-512), "AVX2", "SSE4", "NEON", "SCALAR".
std::vector<std::string> supported_isas();

// The one in use.
std::string kernel_isa();

// Uses `name` from now on, "" = the best. Not while kernels run. Throws Error(kInvalid) if this
// machine or build lacks it.
void pin_isa(const std::string& name);

}  // namespace keel::ops
