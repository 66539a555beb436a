#include "keel/balance/deal.h"

#include <algorithm>
#include <numeric>

#include "keel/base/error.h"

namespace keel::balance {

DealPlan deal(std::span<const int64_t> costs, int32_t num_ranks) {
  KEEL_REQUIRE(num_ranks >= 1, "[balance.deal] expected num_ranks >= 1, got {}", num_ranks);
  for (size_t i = 0; i < costs.size(); ++i) {
    KEEL_REQUIRE(costs[i] >= 0, "[balance.deal] expected costs >= 0, got {} at item {}", costs[i],
                 i);
  }
  std::vector<int32_t> order(costs.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t x, int32_t y) { return costs[x] > costs[y]; });

  const size_t floor = costs.size() / num_ranks;
  size_t num_larger = costs.size() % num_ranks;  // ranks that may hold floor + 1 items
  DealPlan plan;
  plan.ranks.resize(num_ranks);
  std::vector<int64_t> load(num_ranks, 0);
  for (const int32_t item : order) {
    int32_t best = -1;
    for (int32_t r = 0; r < num_ranks; ++r) {
      const size_t count = plan.ranks[r].size();
      if (count > floor || (count == floor && num_larger == 0)) continue;
      if (best < 0 || load[r] < load[best]) best = r;
    }
    if (plan.ranks[best].size() == floor) --num_larger;
    plan.ranks[best].push_back(item);
    load[best] += costs[item];
  }
  for (auto& rank : plan.ranks) std::sort(rank.begin(), rank.end());
  return plan;
}

std::string validate(std::span<const int64_t> costs, int32_t num_ranks, const DealPlan& plan) {
  if (plan.ranks.size() != static_cast<size_t>(num_ranks)) {
    return fmt::format("{} ranks, expected {}", plan.ranks.size(), num_ranks);
  }
  std::vector<int32_t> seen(costs.size(), 0);
  const size_t floor = costs.size() / num_ranks;
  for (const auto& rank : plan.ranks) {
    if (rank.size() < floor || rank.size() > floor + 1) {
      return fmt::format("a rank has {} items, expected {} or {}", rank.size(), floor, floor + 1);
    }
    for (const int32_t i : rank) {
      if (i < 0 || static_cast<size_t>(i) >= costs.size()) return fmt::format("no item {}", i);
      if (++seen[i] > 1) return fmt::format("item {} is dealt twice", i);
    }
  }
  const auto lost = std::find(seen.begin(), seen.end(), 0);
  return lost == seen.end() ? "" : fmt::format("item {} is not dealt", lost - seen.begin());
}

}  // namespace keel::balance
