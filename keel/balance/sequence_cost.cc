#include "keel/balance/sequence_cost.h"

#include "keel/base/error.h"

namespace keel::balance {

std::vector<int64_t> sequence_costs(std::span<const int64_t> lengths, const SequenceCost& cost,
                                    std::string_view where) {
  KEEL_REQUIRE(cost.linear >= 0 && cost.quadratic >= 0,
               "[{}] expected cost coefficients >= 0, got {} and {}", where, cost.linear,
               cost.quadratic);
  std::vector<int64_t> costs(lengths.size());
  constexpr auto kLimit = static_cast<__int128>(1) << 62;
  __int128 sum = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const __int128 s = lengths[i];
    KEEL_REQUIRE(s >= 0, "[{}] expected lengths >= 0, got {} at item {}", where, lengths[i], i);
    KEEL_REQUIRE(s < (int64_t{1} << 40), "[{}] expected lengths below 2^40, got {} at item {}",
                 where, lengths[i], i);
    const __int128 linear = cost.linear * s;
    KEEL_REQUIRE(cost.quadratic == 0 || s * s <= kLimit / cost.quadratic,
                 "[{}] expected costs below 2^62, got a larger one at item {}; try smaller "
                 "coefficients",
                 where, i);
    sum += linear + cost.quadratic * s * s;
    KEEL_REQUIRE(sum < kLimit,
                 "[{}] expected a sum of costs below 2^62, passed it at item {}; try smaller "
                 "coefficients",
                 where, i);
    costs[i] = cost.of(lengths[i]);
  }
  return costs;
}

}  // namespace keel::balance
