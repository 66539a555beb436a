#include "keel/balance/triple_cover.h"

#include <algorithm>
#include <array>

#include "keel/base/rng.h"

namespace keel::balance {
namespace {

constexpr uint64_t kTripleSeed = 0x3c0;
constexpr size_t kMaxTriples = 400000;

using Triple = std::array<int32_t, 3>;  // positions in the descending list

std::vector<Triple> all_triples(std::span<const int64_t> size, int64_t low, int64_t high) {
  std::vector<Triple> triples;
  const auto n = static_cast<int32_t>(size.size());
  for (int32_t a = 0; a + 2 < n; ++a) {
    for (int32_t b = a + 1; b + 1 < n; ++b) {
      const int64_t pair = size[a] + size[b];
      const auto first = std::partition_point(size.begin() + b + 1, size.end(),
                                              [&](int64_t s) { return s + pair > high; });
      for (auto c = first; c != size.end() && *c + pair >= low; ++c) {
        if (triples.size() == kMaxTriples) return {};
        triples.push_back({a, b, static_cast<int32_t>(c - size.begin())});
      }
    }
  }
  return triples;
}

class Cover {
 public:
  Cover(std::vector<Triple> triples, size_t num_items, int64_t room, std::span<const int64_t> size,
        int64_t capacity)
      : triples_(std::move(triples)), room_(room), of_item_(num_items) {
    for (size_t t = 0; t < triples_.size(); ++t) {
      int64_t sum = 0;
      for (const int32_t i : triples_[t]) {
        of_item_[i].push_back(static_cast<int32_t>(t));
        sum += size[i];
      }
      waste_.push_back(capacity - sum);
    }
  }

  // Positions covered by the deepest cover found.
  std::vector<int32_t> search(int64_t effort) {
    const size_t all = of_item_.size() / 3;
    for (uint64_t round = 0; effort_spent_ < effort && best_.size() < all; ++round) {
      reset(round);
      descend(static_cast<int64_t>(all) * 4);
    }
    return best_;
  }

  const Triple& triple(int32_t t) const { return triples_[t]; }

 private:
  void reset(uint64_t round) {
    round_ = round;
    draw_ = 0;
    alive_.assign(triples_.size(), 0);
    covered_.assign(of_item_.size(), false);
    count_.clear();
    for (const auto& list : of_item_) count_.push_back(static_cast<int32_t>(list.size()));
    chosen_.clear();
    left_ = room_;
    nodes_ = 0;
  }

  // The uncovered item with the fewest triples; random among equals.
  int32_t tightest() {
    int32_t best = -1;
    uint64_t ties = 0;
    for (size_t i = 0; i < count_.size(); ++i) {
      if (covered_[i]) continue;
      if (best < 0 || count_[i] < count_[best]) {
        best = static_cast<int32_t>(i);
        ties = 1;
      } else if (count_[i] == count_[best] &&
                 uniform_int(++ties, kTripleSeed, round_, draw_++) == 0) {
        best = static_cast<int32_t>(i);
      }
    }
    effort_spent_ += static_cast<int64_t>(count_.size());
    return best;
  }

  void cover(int32_t t, int32_t sign) {
    left_ -= sign * waste_[t];
    for (const int32_t i : triples_[t]) {
      covered_[i] = sign > 0;
      for (const int32_t other : of_item_[i]) {
        const int32_t before = alive_[other];  // how many of its items are covered
        alive_[other] += sign;
        const bool dies = before == 0 && sign > 0;
        const bool lives = alive_[other] == 0 && sign < 0;
        if (!dies && !lives) continue;
        for (const int32_t k : triples_[other]) count_[k] -= sign;
      }
      effort_spent_ += static_cast<int64_t>(of_item_[i].size());
    }
  }

  bool descend(int64_t max_nodes) {
    if (chosen_.size() > best_.size()) best_ = chosen_;
    if (chosen_.size() * 3 == of_item_.size()) return true;
    const int32_t item = tightest();
    std::vector<int32_t> options;
    for (const int32_t t : of_item_[item]) {
      if (alive_[t] == 0 && waste_[t] <= left_) options.push_back(t);
    }
    // Little waste first; random among equals.
    for (size_t k = options.size(); k > 1; --k) {
      std::swap(options[k - 1], options[uniform_int(k, kTripleSeed, round_, draw_++)]);
    }
    std::stable_sort(options.begin(), options.end(),
                     [&](int32_t x, int32_t y) { return waste_[x] < waste_[y]; });
    for (const int32_t t : options) {
      if (++nodes_ > max_nodes) return false;
      cover(t, 1);
      chosen_.push_back(t);
      if (descend(max_nodes)) return true;
      chosen_.pop_back();
      cover(t, -1);
    }
    return false;
  }

  std::vector<Triple> triples_;
  int64_t room_;
  std::vector<std::vector<int32_t>> of_item_;  // [position] its triples
  std::vector<int64_t> waste_;                 // [triple]
  std::vector<int32_t> alive_;                 // [triple] covered items; 0 = may be chosen
  std::vector<int32_t> count_;                 // [position] triples that may be chosen
  std::vector<bool> covered_;
  std::vector<int32_t> chosen_, best_;
  int64_t left_ = 0;
  uint64_t round_ = 0, draw_ = 0;
  int64_t nodes_ = 0, effort_spent_ = 0;
};

}  // namespace

TripleCover cover_by_triples(std::span<const int64_t> sizes, std::span<const int32_t> items,
                             int64_t capacity, int64_t num_bins, int64_t effort) {
  TripleCover out;
  const auto n = std::ssize(items);
  if (num_bins < 1 || n != 3 * num_bins) return out;
  std::vector<int64_t> size;
  int64_t room = num_bins * capacity;
  for (const int32_t i : items) {
    size.push_back(sizes[i]);
    room -= sizes[i];
  }
  if (room < 0 || size[0] + size[1] >= capacity - room) return out;
  Cover cover(all_triples(size, capacity - room, capacity), items.size(), room, size, capacity);
  std::vector<bool> used(items.size(), false);
  for (const int32_t t : cover.search(effort)) {
    out.bins.emplace_back();
    for (const int32_t position : cover.triple(t)) {
      used[position] = true;
      out.bins.back().push_back(items[position]);
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    if (!used[i]) out.rest.push_back(items[i]);
  }
  return out;
}

}  // namespace keel::balance
