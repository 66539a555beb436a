#include "keel/balance/published/karmarkar_karp.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <queue>
#include <tuple>

#include "keel/base/error.h"

namespace keel::balance::published {
namespace {

struct Set {
  int64_t sum = 0;
  std::vector<int32_t> items;

  bool operator<(const Set& other) const {
    return std::forward_as_tuple(sum, items.size(), items) <
           std::forward_as_tuple(other.sum, other.items.size(), other.items);
  }
};

struct State {
  std::vector<Set> sets;  // descending

  void sort() {
    std::stable_sort(sets.begin(), sets.end(), [](const Set& a, const Set& b) { return b < a; });
  }
  int64_t spread() const { return sets.front().sum - sets.back().sum; }
};

using Entry = std::unique_ptr<State>;

// The heap's top has the largest spread, then the largest first set.
struct PoppedLater {
  bool operator()(const Entry& a, const Entry& b) const {
    if (a->spread() != b->spread()) return a->spread() < b->spread();
    return a->sets.front() < b->sets.front();
  }
};

void merge(State& into, State& from) {
  const size_t k = into.sets.size();
  for (size_t i = 0; i < k; ++i) {
    const Set& other = from.sets[k - 1 - i];
    into.sets[i].sum += other.sum;
    into.sets[i].items.insert(into.sets[i].items.end(), other.items.begin(), other.items.end());
  }
  into.sort();
}

void check(std::span<const int64_t> weights, int32_t num_parts, bool equal) {
  KEEL_REQUIRE(num_parts >= 1 && std::ssize(weights) >= num_parts,
               "[balance.karmarkar_karp] expected 1 <= parts <= {} items, got {}", weights.size(),
               num_parts);
  KEEL_REQUIRE(!equal || std::ssize(weights) % num_parts == 0,
               "[balance.karmarkar_karp] expected equal parts, got {} items in {}", weights.size(),
               num_parts);
}

}  // namespace

Parts karmarkar_karp(std::span<const int64_t> weights, int32_t num_parts, bool equal) {
  check(weights, num_parts, equal);
  std::vector<int32_t> order(weights.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t x, int32_t y) { return weights[x] < weights[y]; });
  std::vector<Entry> heap;
  const size_t step = equal ? num_parts : 1;
  for (size_t at = 0; at < order.size(); at += step) {
    auto state = std::make_unique<State>();
    state->sets.resize(num_parts);
    for (size_t i = 0; i < step; ++i) {
      state->sets[i] = {weights[order[at + i]], {order[at + i]}};
    }
    state->sort();
    heap.push_back(std::move(state));
  }
  std::make_heap(heap.begin(), heap.end(), PoppedLater{});
  const auto pop = [&] {
    std::pop_heap(heap.begin(), heap.end(), PoppedLater{});
    Entry top = std::move(heap.back());
    heap.pop_back();
    return top;
  };
  while (heap.size() > 1) {
    Entry first = pop();
    const Entry second = pop();
    merge(*first, *second);
    heap.push_back(std::move(first));
    std::push_heap(heap.begin(), heap.end(), PoppedLater{});
  }
  Parts parts;
  for (auto& set : heap.front()->sets) parts.push_back(std::move(set.items));
  return parts;
}

Parts verl_balanced_partitions(std::span<const int64_t> weights, int32_t num_parts, bool equal) {
  auto parts = karmarkar_karp(weights, num_parts, equal);
  for (auto& part : parts) std::sort(part.begin(), part.end());
  return parts;
}

Parts verl_greedy(std::span<const int64_t> weights, int32_t num_parts, bool equal) {
  check(weights, num_parts, equal);
  // A bias larger than all weights together makes the number of items decide first.
  const int64_t bias = equal ? std::accumulate(weights.begin(), weights.end(), int64_t{0}) + 1 : 0;
  Parts parts(num_parts);
  std::vector<int64_t> sums(num_parts, 0);
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto p = std::min_element(sums.begin(), sums.end()) - sums.begin();
    parts[p].push_back(static_cast<int32_t>(i));
    sums[p] += weights[i] + bias;
  }
  return parts;
}

std::vector<Parts> slime_schedule(std::span<const int64_t> lengths, int64_t cap, int32_t num_ranks,
                                  bool balance, int64_t cost_linear) {
  KEEL_REQUIRE(num_ranks >= 1 && std::ssize(lengths) >= num_ranks,
               "[balance.slime] expected a sample for each of {} ranks, got {}", num_ranks,
               lengths.size());
  struct Bin {
    std::vector<int32_t> items;
    int64_t tokens = 0;
    void add(int32_t i, int64_t length) {
      items.push_back(i);
      tokens += length;
    }
  };
  std::vector<Bin> bins;
  for (int32_t i = 0; i < std::ssize(lengths); ++i) {
    const auto fit = std::find_if(bins.begin(), bins.end(),
                                  [&](const Bin& b) { return b.tokens + lengths[i] <= cap; });
    (fit == bins.end() ? bins.emplace_back() : *fit).add(i, lengths[i]);
  }
  const size_t count = (bins.size() + num_ranks - 1) / num_ranks * num_ranks;
  while (bins.size() < count) {
    Bin* fullest = nullptr;
    for (Bin& bin : bins) {
      if (bin.items.size() > 1 && (fullest == nullptr || bin.tokens >= fullest->tokens)) {
        fullest = &bin;
      }
    }
    KEEL_REQUIRE(fullest != nullptr, "[balance.slime] expected {} micro-batches, got {} samples",
                 count, lengths.size());
    auto items = fullest->items;
    std::stable_sort(items.begin(), items.end(),
                     [&](int32_t x, int32_t y) { return lengths[x] > lengths[y]; });
    Bin left;
    Bin right;
    for (const int32_t i : items) (left.tokens <= right.tokens ? left : right).add(i, lengths[i]);
    *fullest = std::move(left);
    bins.push_back(std::move(right));
  }
  Parts of_rank(num_ranks);
  if (balance) {
    std::vector<int64_t> costs;
    for (const Bin& bin : bins) {
      costs.push_back(0);
      for (const int32_t i : bin.items) costs.back() += (cost_linear + lengths[i]) * lengths[i];
    }
    of_rank = verl_balanced_partitions(costs, num_ranks, true);
  } else {
    for (size_t b = 0; b < bins.size(); ++b) {
      of_rank[b % num_ranks].push_back(static_cast<int32_t>(b));
    }
  }
  std::vector<Parts> out(num_ranks);
  for (int32_t r = 0; r < num_ranks; ++r) {
    for (const int32_t b : of_rank[r]) out[r].push_back(bins[b].items);
  }
  return out;
}

}  // namespace keel::balance::published
