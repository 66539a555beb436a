// What decides the bits of forward results; stored in samples and checkpoints. docs/numerics.md is
// the law.
#pragma once

#include <string>

#include "keel/ops/packed.h"

namespace keel::ops {

// Raised with every change of a forward bit (docs/numerics.md says why).
inline constexpr int kNumericsVersion = 2;

// "v1/avx2/leaf8/split64/tile512/f32".
std::string numerics_id(DType dtype);

}  // namespace keel::ops
