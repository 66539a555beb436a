#include <algorithm>
#include <numeric>

#include "keel/balance/published/context_groups.h"
#include "keel/base/error.h"

namespace keel::balance::published {
namespace {

using Groups = std::vector<std::vector<int32_t>>;

struct Leftover {
  int32_t sequence = 0;
  double part = 0;  // of a rank
};

// No rank is free: leftovers are merged into the groups there are, one after the other, again from
// the first when all had one. Groups are read when their turn comes, so merges before count.
void merge_into_groups(std::span<const Leftover> leftovers, Groups& groups) {
  std::vector<std::pair<std::vector<int32_t>, size_t>> seen;
  size_t next = 0;
  for (size_t k = 0; k < leftovers.size(); ++k) {
    while (next < groups.size() && groups[next].empty()) ++next;
    size_t turn = seen.size();
    if (next < groups.size()) {
      seen.emplace_back(groups[next], next);
      ++next;
    } else if (seen.empty()) {
      continue;
    } else {
      turn = k % seen.size();
    }
    const auto& [ranks, owner] = seen[turn];
    auto merged = groups[leftovers[k].sequence];
    merged.insert(merged.end(), ranks.begin(), ranks.end());
    std::sort(merged.begin(), merged.end());
    merged.erase(std::unique(merged.begin(), merged.end()), merged.end());
    groups[leftovers[k].sequence] = merged;
    groups[owner] = std::move(merged);
  }
}

// Each free rank takes leftovers up to a level share, largest first; their own ranks join.
void give_free_ranks(std::vector<Leftover> leftovers, int32_t cp, int32_t& start, Groups& groups) {
  std::stable_sort(leftovers.begin(), leftovers.end(),
                   [](const Leftover& a, const Leftover& b) { return a.part > b.part; });
  std::vector<std::vector<int32_t>> members(cp - start);
  std::vector<double> sums(cp - start, 0);
  for (const auto& leftover : leftovers) {
    const auto rank = std::min_element(sums.begin(), sums.end()) - sums.begin();
    members[rank].push_back(leftover.sequence);
    sums[rank] += leftover.part;
  }
  for (const auto& sequences : members) {
    if (sequences.empty()) continue;
    std::vector<int32_t> group = {start++};
    for (const int32_t i : sequences) group.insert(group.end(), groups[i].begin(), groups[i].end());
    std::sort(group.begin(), group.end());
    for (const int32_t i : sequences) groups[i] = group;
  }
}

}  // namespace

std::optional<Groups> recipe_groups(std::span<const int64_t> lengths, int32_t cp) {
  KEEL_REQUIRE(cp >= 1 && !lengths.empty(),
               "[balance.recipe] expected sequences and cp >= 1, got "
               "{} and {}",
               lengths.size(), cp);
  const auto total =
      static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}));
  std::vector<double> need;
  for (const int64_t s : lengths) need.push_back(static_cast<double>(s) / (total / cp));
  Groups groups(lengths.size());
  std::vector<Leftover> leftovers;
  int32_t start = 0;
  for (int32_t i = 0; i < std::ssize(lengths); ++i) {
    const auto whole = static_cast<int32_t>(need[i]);
    const double part = need[i] - whole;
    if (whole >= 1) {
      for (int32_t k = 0; k < whole; ++k) groups[i].push_back(start++);
      if (part < std::min(0.1 * whole, 0.5)) continue;
      if (part > 0.9) {
        groups[i].push_back(start++);
        continue;
      }
    }
    leftovers.push_back({i, part});
  }
  if (!leftovers.empty() && start >= cp) {
    merge_into_groups(leftovers, groups);
  } else if (!leftovers.empty()) {
    give_free_ranks(std::move(leftovers), cp, start, groups);
  }
  while (start < cp) {
    const auto smallest =
        std::min_element(groups.begin(), groups.end(),
                         [](const auto& a, const auto& b) { return a.size() < b.size(); });
    smallest->push_back(start++);
  }
  KEEL_REQUIRE(start == cp, "[balance.recipe] expected groups on {} ranks, got {}", cp, start);
  if (std::ssize(groups[0]) == cp) return std::nullopt;
  std::vector<double> load(cp, 0);
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const int32_t r : groups[i]) load[r] += need[i] / static_cast<double>(groups[i].size());
  }
  if (std::any_of(load.begin(), load.end(), [](double x) { return x > 1.3; })) return std::nullopt;
  return groups;
}

std::vector<std::vector<int32_t>> recipe_pack(std::span<const int64_t> lengths, int64_t cap,
                                              int32_t num_buckets) {
  KEEL_REQUIRE(num_buckets >= 1, "[balance.recipe] expected num_buckets >= 1, got {}", num_buckets);
  std::vector<int32_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t x, int32_t y) { return lengths[x] > lengths[y]; });
  std::vector<std::vector<int32_t>> buckets(num_buckets);
  std::vector<int64_t> sums(num_buckets, 0);
  for (const int32_t i : order) {
    auto fit = std::find_if(sums.begin(), sums.end(),
                            [&](int64_t sum) { return sum + lengths[i] <= cap; });
    if (fit == sums.end()) fit = std::min_element(sums.begin(), sums.end());
    *fit += lengths[i];
    buckets[fit - sums.begin()].push_back(i);
  }
  return buckets;
}

}  // namespace keel::balance::published
