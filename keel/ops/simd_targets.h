// Instruction sets that the SIMD kernels are built for; include before any Highway header. Built:
// scalar, SSE4 (the 4-lane form that NEON also uses), AVX2, AVX-512, NEON.
#pragma once

// Vectors of unknown length cannot be array elements; SSSE3 adds nothing over the scalar baseline
// that a machine of our time would need.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
