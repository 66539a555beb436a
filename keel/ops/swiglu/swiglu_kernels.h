// Gated activation (Shazeer, 2020): y = silu(gate) * up. In bf16 models silu(gate) is rounded
// before the product, and the product again.
#pragma once

#include <cstdint>

namespace keel::ops {

// gate_up: [m, 2n], gate in columns [0, n), up in [n, 2n); y: [m, n]; n a multiple of 8; all
// contiguous.
void swiglu_forward(const float* gate_up, int64_t m, int64_t n, bool round_bf16, float* y);

// d_gate_up: [m, 2n] is overwritten; it may be the same memory as gate_up.
void swiglu_backward(const float* gate_up, const float* dy, int64_t m, int64_t n, float* d_gate_up);

}  // namespace keel::ops
