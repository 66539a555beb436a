#include "keel/reward/shaping.h"

#include <algorithm>

#include "keel/base/error.h"

namespace keel {

double overlong_penalty(const OverlongPenalty& p, int64_t response_tokens) {
  KEEL_REQUIRE(p.buffer_tokens > 0 && p.buffer_tokens <= p.max_response_tokens,
               "[reward.overlong] expected a buffer in (0, {}], got {} tokens",
               p.max_response_tokens, p.buffer_tokens);
  const int64_t over = response_tokens - (p.max_response_tokens - p.buffer_tokens);
  const double share = static_cast<double>(over) / static_cast<double>(p.buffer_tokens);
  return over <= 0 ? 0 : -p.factor * std::min(share, 1.0);
}

}  // namespace keel
