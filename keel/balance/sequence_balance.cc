#include "keel/balance/sequence_balance.h"

#include <algorithm>
#include <utility>

#include "keel/balance/partition_search.h"
#include "keel/base/error.h"

namespace keel::balance {
namespace {

void check(int32_t num_ranks, const SequenceBalanceOptions& options) {
  KEEL_REQUIRE(num_ranks >= 1, "[balance.sequences] expected num_ranks >= 1, got {}", num_ranks);
  KEEL_REQUIRE(options.cap_tokens >= 0 && options.tolerance >= 0 && options.effort >= 0,
               "[balance.sequences] expected cap_tokens, tolerance and effort >= 0, got {}, {}, {}",
               options.cap_tokens, options.tolerance, options.effort);
}

}  // namespace

int64_t SequencePlan::max_cost() const {
  return costs.empty() ? 0 : *std::max_element(costs.begin(), costs.end());
}

SequencePlan balance_sequences(std::span<const int64_t> lengths, int32_t num_ranks,
                               const SequenceCost& cost, const SequenceBalanceOptions& options) {
  check(num_ranks, options);
  const auto costs = sequence_costs(lengths, cost, "balance.sequences");
  const bool equal = options.mode == CountMode::kEqual;
  SequencePlan plan;
  auto found = search_partition({.weights = costs,
                                 .tokens = lengths,
                                 .num_parts = num_ranks,
                                 .equal = equal,
                                 .cap_tokens = options.cap_tokens,
                                 .tolerance = options.tolerance,
                                 .effort = options.effort});
  plan.lower_bound = found.lower_bound;
  plan.ranks = std::move(found.parts);
  for (const auto& rank : plan.ranks) {
    int64_t tokens = 0;
    plan.costs.push_back(0);
    for (const int32_t i : rank) {
      plan.costs.back() += costs[i];
      tokens += lengths[i];
    }
    if (options.cap_tokens > 0 && tokens > options.cap_tokens) plan.within_cap = false;
  }
  return plan;
}

std::string validate(std::span<const int64_t> lengths, int32_t num_ranks, const SequenceCost& cost,
                     const SequenceBalanceOptions& options, const SequencePlan& plan) {
  if (std::ssize(plan.ranks) != num_ranks || plan.costs.size() != plan.ranks.size()) {
    return fmt::format("{} ranks with {} costs, expected {}", plan.ranks.size(), plan.costs.size(),
                       num_ranks);
  }
  std::vector<int32_t> seen(lengths.size(), 0);
  const size_t floor = lengths.size() / plan.ranks.size();
  const size_t ceil = floor + (lengths.size() % plan.ranks.size() != 0);
  for (size_t r = 0; r < plan.ranks.size(); ++r) {
    const auto& rank = plan.ranks[r];
    int64_t sum = 0;
    int64_t tokens = 0;
    for (const int32_t i : rank) {
      if (i < 0 || static_cast<size_t>(i) >= lengths.size()) return fmt::format("no item {}", i);
      if (++seen[i] > 1) return fmt::format("item {} is on two ranks", i);
      sum += cost.of(lengths[i]);
      tokens += lengths[i];
    }
    if (!std::is_sorted(rank.begin(), rank.end())) {
      return fmt::format("items of rank {} are not ascending", r);
    }
    if (sum != plan.costs[r]) {
      return fmt::format("rank {} states cost {}, has {}", r, plan.costs[r], sum);
    }
    if (options.mode == CountMode::kEqual && (rank.size() < floor || rank.size() > ceil)) {
      return fmt::format("rank {} has {} items, expected {} to {}", r, rank.size(), floor, ceil);
    }
    if (options.cap_tokens > 0 && tokens > options.cap_tokens) {
      return fmt::format("rank {} has {} tokens, cap {}", r, tokens, options.cap_tokens);
    }
  }
  const auto lost = std::find(seen.begin(), seen.end(), 0);
  return lost == seen.end() ? "" : fmt::format("item {} is on no rank", lost - seen.begin());
}

}  // namespace keel::balance
