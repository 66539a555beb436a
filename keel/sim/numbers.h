// Conversions that cost formulas need everywhere.
#pragma once

#include <algorithm>
#include <cstdint>

namespace keel::sim {

inline double to_double(int64_t value) { return static_cast<double>(value); }
inline int64_t at_least_one(int64_t value) { return std::max<int64_t>(1, value); }

}  // namespace keel::sim
