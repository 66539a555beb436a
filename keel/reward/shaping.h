// Rewards that depend on length.
#pragma once

#include <cstdint>

namespace keel {

struct OverlongPenalty {
  int64_t max_response_tokens = 0;  // > 0
  int64_t buffer_tokens = 0;        // in (0, max_response_tokens]: the last part, where it grows
  double factor = 1;                // penalty at max_response_tokens
};

// DAPO's soft overlong punishment (arXiv 2503.14476, eq. 13): 0 up to max - buffer tokens, then
// linear down to -factor at max, and -factor above.
double overlong_penalty(const OverlongPenalty& p, int64_t response_tokens);

}  // namespace keel
