#include "keel/balance/partition_search.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <queue>
#include <set>

#include "keel/base/rng.h"

namespace keel::balance {
namespace {

// Two parts with at most so many items together are split anew by trying all ways.
constexpr int kMaxPairItems = 14;
constexpr uint64_t kPartitionSeed = 0x5eed;

struct Part {
  std::vector<int32_t> items;  // ascending positions in the order by weight
  int64_t load = 0;
  int64_t tokens = 0;
};

struct Exchange {
  int64_t distance = std::numeric_limits<int64_t>::max();  // of twice the moved weight from the gap
  int32_t from = -1;                                       // index into the dearer part
  int32_t to = -1;                                         // index into the other part, -1: a move
};

class PartitionSearch {
 public:
  explicit PartitionSearch(const PartitionTask& task) : task_(task) {
    const size_t n = task.weights.size();
    std::vector<std::pair<int64_t, int32_t>> sorted(n);
    for (size_t i = 0; i < n; ++i) sorted[i] = {task.weights[i], -static_cast<int32_t>(i)};
    std::sort(sorted.begin(), sorted.end());
    for (const auto& [weight, negated] : sorted) {
      weights_.push_back(weight);
      order_.push_back(-negated);
      if (task.cap_tokens > 0) tokens_.push_back(task.tokens[-negated]);
    }
    const std::vector<int64_t> descending(weights_.rbegin(), weights_.rend());
    bound_ = sorted_partition_bound(descending, task.num_parts, task.equal);
    target_ = bound_ + static_cast<int64_t>(static_cast<double>(bound_) * task.tolerance);
  }

  Partition run() {
    deal_longest_first();
    index_loads();
    descend(false);
    if (largest() > target_ && small()) perturb();
    Partition out{std::vector<std::vector<int32_t>>(parts_.size()), bound_};
    for (size_t p = 0; p < parts_.size(); ++p) {
      for (const int32_t x : parts_[p].items) out.parts[p].push_back(order_[x]);
      std::sort(out.parts[p].begin(), out.parts[p].end());
    }
    return out;
  }

 private:
  int64_t tokens_of(int32_t x) const { return tokens_.empty() ? 0 : tokens_[x]; }
  bool fits(int64_t tokens) const { return task_.cap_tokens <= 0 || tokens <= task_.cap_tokens; }
  int64_t largest() const { return loads_.rbegin()->first; }
  bool small() const { return weights_.size() <= parts_.size() * 8 && weights_.size() <= 256; }

  void put(Part& part, int32_t x) {
    part.items.push_back(x);
    part.load += weights_[x];
    part.tokens += tokens_of(x);
  }

  // Longest first to the lightest part that has room; under a cap that nobody can keep, to the part
  // with the fewest tokens.
  void deal_longest_first() {
    parts_.assign(task_.num_parts, {});
    const size_t floor = weights_.size() / parts_.size();
    size_t num_larger = weights_.size() % parts_.size();
    using Entry = std::pair<int64_t, int32_t>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
    for (int32_t p = 0; p < task_.num_parts; ++p) open.emplace(0, p);
    std::vector<Entry> aside;
    for (auto x = static_cast<int32_t>(weights_.size()) - 1; x >= 0; --x) {
      int32_t chosen = -1;
      while (!open.empty()) {
        const auto [load, p] = open.top();
        open.pop();
        const size_t count = parts_[p].items.size();
        if (task_.equal && (count > floor || (count == floor && num_larger == 0))) continue;
        if (fits(parts_[p].tokens + tokens_of(x))) {
          chosen = p;
          break;
        }
        aside.emplace_back(load, p);
      }
      if (chosen < 0) {
        const auto least = std::min_element(aside.begin(), aside.end(), [&](auto& a, auto& b) {
          return parts_[a.second].tokens < parts_[b.second].tokens;
        });
        chosen = least->second;
        aside.erase(least);
      }
      if (task_.equal && parts_[chosen].items.size() == floor) --num_larger;
      put(parts_[chosen], x);
      open.emplace(parts_[chosen].load, chosen);
      for (const auto& entry : aside) open.push(entry);
      aside.clear();
    }
    for (auto& part : parts_) std::reverse(part.items.begin(), part.items.end());
  }

  void index_loads() {
    loads_.clear();
    for (size_t p = 0; p < parts_.size(); ++p) {
      loads_.emplace(parts_[p].load, static_cast<int32_t>(p));
    }
  }

  void set_items(int32_t p, std::vector<int32_t> items) {
    loads_.erase({parts_[p].load, p});
    std::sort(items.begin(), items.end());
    parts_[p] = {};
    for (const int32_t x : items) put(parts_[p], x);
    loads_.emplace(parts_[p].load, p);
  }

  // Improves the dearest part against the others, cheapest first, until that fails everywhere.
  void descend(bool try_pairs) {
    while (spent_ < task_.effort && largest() > target_) {
      const int32_t a = loads_.rbegin()->second;
      bool improved = false;
      for (auto it = loads_.begin(); it != loads_.end() && spent_ < task_.effort; ++it) {
        const int32_t b = it->second;
        if (parts_[a].load - it->first <= 1) break;
        if (exchange(a, b) || (try_pairs && split_anew(a, b))) {
          improved = true;
          break;
        }
      }
      if (!improved) return;
    }
  }

  bool exchange(int32_t a, int32_t b) {
    const Part& from = parts_[a];
    const Part& to = parts_[b];
    const int64_t gap = from.load - to.load;
    spent_ += static_cast<int64_t>(from.items.size() + to.items.size());
    Exchange best;
    const auto offer = [&](int64_t delta, int32_t i, int32_t j) {
      if (delta <= 0 || delta >= gap) return;
      const int64_t distance = std::abs(2 * delta - gap);
      if (distance >= best.distance) return;
      if (task_.cap_tokens > 0) {
        const int64_t moved = tokens_of(from.items[i]) - (j < 0 ? 0 : tokens_of(to.items[j]));
        if (moved > 0 && !fits(to.tokens + moved)) return;
        if (moved < 0 && !fits(from.tokens - moved)) return;
      }
      best = {distance, i, j};
    };
    const auto num_to = static_cast<int32_t>(to.items.size());
    int32_t j = 0;
    for (int32_t i = 0; i < static_cast<int32_t>(from.items.size()); ++i) {
      const int64_t w = weights_[from.items[i]];
      if (!task_.equal) offer(w, i, -1);
      while (j < num_to && 2 * (w - weights_[to.items[j]]) > gap) ++j;
      if (j < num_to) offer(w - weights_[to.items[j]], i, j);
      if (j > 0) offer(w - weights_[to.items[j - 1]], i, j - 1);
    }
    if (best.from < 0) return false;
    std::vector<int32_t> left = from.items;
    std::vector<int32_t> right = to.items;
    const int32_t x = left[best.from];
    left.erase(left.begin() + best.from);
    if (best.to >= 0) {
      left.push_back(right[best.to]);
      right.erase(right.begin() + best.to);
    }
    right.push_back(x);
    set_items(a, std::move(left));
    set_items(b, std::move(right));
    return true;
  }

  // The best split of two parts' items, found by trying all subsets that keep the sizes.
  bool split_anew(int32_t a, int32_t b) {
    std::vector<int32_t> pool = parts_[a].items;
    pool.insert(pool.end(), parts_[b].items.begin(), parts_[b].items.end());
    const int n = static_cast<int>(pool.size());
    if (n > kMaxPairItems || n < 3) return false;
    const int size_a = static_cast<int>(parts_[a].items.size());
    const int64_t total = parts_[a].load + parts_[b].load;
    const int64_t total_tokens = parts_[a].tokens + parts_[b].tokens;
    int64_t best = parts_[a].load;
    uint32_t best_mask = 0;
    int64_t load = 0;
    int64_t tokens = 0;
    uint32_t mask = 0;
    const uint32_t end = 1u << (n - 1);  // the last item stays on one side: halves the work
    spent_ += end;
    for (uint32_t step = 1; step < end; ++step) {
      const int bit = std::countr_zero(step);
      mask ^= 1u << bit;
      const int sign = (mask >> bit & 1) ? 1 : -1;
      load += sign * weights_[pool[bit]];
      if (std::max(load, total - load) >= best) continue;
      if (task_.equal) {
        const int count = std::popcount(mask);
        if (count != size_a && count != n - size_a) continue;
      }
      if (task_.cap_tokens > 0) {
        tokens = 0;
        for (int i = 0; i < n; ++i) tokens += (mask >> i & 1) ? tokens_of(pool[i]) : 0;
        if (!fits(tokens) || !fits(total_tokens - tokens)) continue;
      }
      best = std::max(load, total - load);
      best_mask = mask;
    }
    if (best_mask == 0) return false;
    std::vector<int32_t> left;
    std::vector<int32_t> right;
    for (int i = 0; i < n; ++i) ((best_mask >> i & 1) ? left : right).push_back(pool[i]);
    if (task_.equal && static_cast<int>(left.size()) != size_a) std::swap(left, right);
    set_items(a, std::move(left));
    set_items(b, std::move(right));
    return true;
  }

  // Deals the items of the dearest part and of up to three others anew at random and descends; what
  // is not worse is kept.
  void perturb() {
    descend(true);
    std::vector<Part> best = parts_;
    int64_t best_load = largest();
    for (uint64_t round = 0; spent_ < task_.effort && best_load > target_; ++round) {
      shuffle_some(round);
      descend(true);
      if (largest() > best_load) {
        parts_ = best;
        index_loads();
      } else {
        best_load = largest();
        best = parts_;
      }
      spent_ += static_cast<int64_t>(weights_.size()) * 4;
    }
    parts_ = best;
    index_loads();
  }

  void shuffle_some(uint64_t round) {
    uint64_t draw = 0;
    const auto random = [&](uint64_t bound) {
      return uniform_int(bound, kPartitionSeed, round, draw++);
    };
    std::vector<int32_t> chosen = {loads_.rbegin()->second};
    const size_t want = std::min<size_t>(parts_.size(), 2 + random(3));
    while (chosen.size() < want) {
      const auto p = static_cast<int32_t>(random(parts_.size()));
      if (std::find(chosen.begin(), chosen.end(), p) == chosen.end()) chosen.push_back(p);
    }
    std::vector<int32_t> pool;
    std::vector<size_t> sizes;
    for (const int32_t p : chosen) {
      pool.insert(pool.end(), parts_[p].items.begin(), parts_[p].items.end());
      sizes.push_back(parts_[p].items.size());
    }
    for (size_t i = pool.size(); i > 1; --i) std::swap(pool[i - 1], pool[random(i)]);
    std::vector<std::vector<int32_t>> dealt(chosen.size());
    size_t next = 0;
    for (size_t c = 0; c < chosen.size(); ++c) {
      for (size_t i = 0; i < sizes[c]; ++i) dealt[c].push_back(pool[next++]);
    }
    if (task_.cap_tokens > 0) {
      for (const auto& items : dealt) {
        int64_t tokens = 0;
        for (const int32_t x : items) tokens += tokens_of(x);
        if (!fits(tokens)) return;
      }
    }
    for (size_t c = 0; c < chosen.size(); ++c) set_items(chosen[c], std::move(dealt[c]));
  }

  const PartitionTask& task_;
  std::vector<int32_t> order_;    // item index by position, lightest first
  std::vector<int64_t> weights_;  // by position
  std::vector<int64_t> tokens_;   // by position; empty without a cap
  std::vector<Part> parts_;
  std::set<std::pair<int64_t, int32_t>> loads_;  // (load, part)
  int64_t bound_ = 0;
  int64_t target_ = 0;
  int64_t spent_ = 0;
};

}  // namespace

Partition search_partition(const PartitionTask& task) { return PartitionSearch(task).run(); }

int64_t sorted_partition_bound(std::span<const int64_t> descending, int32_t num_parts, bool equal) {
  if (descending.empty()) return 0;
  const auto n = std::ssize(descending);
  std::vector<int64_t> prefix(descending.size() + 1, 0);
  for (int64_t i = 0; i < n; ++i) prefix[i + 1] = prefix[i] + descending[i];
  int64_t bound = std::max((prefix[n] + num_parts - 1) / num_parts, descending[0]);
  const bool even = equal && n % num_parts == 0;
  for (int64_t j = 0; j * num_parts + 1 <= n; ++j) {
    const int64_t last = j * num_parts + 1;
    int64_t met = prefix[last] - prefix[last - j - 1];
    if (even) met += prefix[n] - prefix[n - std::max<int64_t>(n / num_parts - j - 1, 0)];
    bound = std::max(bound, met);
  }
  return bound;
}

}  // namespace keel::balance
