#include "keel/balance/bin_packing.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

#include "keel/balance/triple_cover.h"
#include "keel/base/rng.h"

namespace keel::balance {
namespace {

constexpr uint64_t kPackingSeed = 0xb145;
constexpr int64_t kFillNodes = 600;  // of one subset-sum search

std::vector<int32_t> descending_order(std::span<const int64_t> sizes) {
  std::vector<std::pair<int64_t, int32_t>> keys(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) keys[i] = {-sizes[i], static_cast<int32_t>(i)};
  std::sort(keys.begin(), keys.end());
  std::vector<int32_t> order;
  order.reserve(keys.size());
  for (const auto& key : keys) order.push_back(key.second);
  return order;
}

// Bins filled one by one: the largest item left, then the subset that leaves the least room.
class SlackFiller {
 public:
  SlackFiller(std::span<const int64_t> sizes, int64_t capacity)
      : sizes_(sizes), capacity_(capacity) {}

  // items: descending by size, each <= capacity.
  BinItems fill(std::vector<int32_t> items, int64_t& spent) {
    BinItems bins;
    while (!items.empty()) {
      items_ = &items;
      suffix_.assign(items.size() + 1, 0);
      for (size_t i = items.size(); i-- > 0;) suffix_[i] = suffix_[i + 1] + sizes_[items[i]];
      chosen_.assign(1, 0);
      best_chosen_ = chosen_;
      best_room_ = capacity_ - sizes_[items[0]];
      nodes_ = 0;
      search(1, best_room_);
      spent += nodes_ + static_cast<int64_t>(items.size());
      bins.emplace_back();
      for (const size_t i : best_chosen_) bins.back().push_back(items[i]);
      for (size_t k = best_chosen_.size(); k-- > 0;) {
        items.erase(items.begin() + static_cast<int64_t>(best_chosen_[k]));
      }
    }
    return bins;
  }

 private:
  void search(size_t from, int64_t room) {
    const auto& items = *items_;
    if (room < best_room_) {
      best_room_ = room;
      best_chosen_ = chosen_;
    }
    // First item that fits: the list is descending.
    auto first = std::partition_point(items.begin() + static_cast<int64_t>(from), items.end(),
                                      [&](int32_t i) { return sizes_[i] > room; });
    int64_t last_size = -1;
    for (auto i = static_cast<size_t>(first - items.begin()); i < items.size(); ++i) {
      if (best_room_ == 0 || ++nodes_ > kFillNodes) return;
      if (room - suffix_[i] >= best_room_) return;  // even all of the rest leaves more room
      const int64_t size = sizes_[items[i]];
      if (size == last_size) continue;
      last_size = size;
      chosen_.push_back(i);
      search(i + 1, room - size);
      chosen_.pop_back();
    }
  }

  std::span<const int64_t> sizes_;
  int64_t capacity_;
  const std::vector<int32_t>* items_ = nullptr;
  std::vector<int64_t> suffix_;
  std::vector<size_t> chosen_, best_chosen_;
  int64_t best_room_ = 0;
  int64_t nodes_ = 0;
};

class Packer {
 public:
  Packer(std::span<const int64_t> sizes, int64_t capacity, int64_t target, int64_t effort)
      : sizes_(sizes),
        capacity_(capacity),
        target_(target),
        effort_(effort),
        filler_(sizes, capacity) {}

  BinItems run() {
    best_ = best_fit_decreasing(sizes_, capacity_);
    if (done()) return best_;
    std::vector<int32_t> items;
    BinItems alone;
    for (const int32_t i : descending_order(sizes_)) {
      if (sizes_[i] > capacity_) {
        alone.push_back({i});
      } else {
        items.push_back(i);
      }
    }
    target_ -= std::ssize(alone);
    best_.erase(best_.begin(), best_.begin() + std::ssize(alone));
    search(items);
    best_.insert(best_.begin(), alone.begin(), alone.end());
    return best_;
  }

 private:
  bool done() const { return std::ssize(best_) <= target_; }

  void offer(BinItems bins) {
    if (bins.size() < best_.size()) best_ = std::move(bins);
  }

  void search(const std::vector<int32_t>& items) {
    const auto triples = cover_by_triples(sizes_, items, capacity_, target_, effort_ / 2);
    if (!triples.bins.empty()) {
      auto bins = filler_.fill(triples.rest, spent_);
      bins.insert(bins.end(), triples.bins.begin(), triples.bins.end());
      offer(std::move(bins));
      if (done()) return;
    }
    offer(filler_.fill(items, spent_));
    BinItems current = best_;
    for (uint64_t round = 0; spent_ < effort_ && !done(); ++round) ruin_and_refill(current, round);
  }

  int64_t room_of(const std::vector<int32_t>& bin) const {
    int64_t room = capacity_;
    for (const int32_t i : bin) room -= sizes_[i];
    return room;
  }

  // Empties the bin with most room and some others and fills them anew from a shuffled start.
  // Fuller bins (a larger sum of squares) or fewer of them are kept.
  void ruin_and_refill(BinItems& current, uint64_t round) {
    uint64_t draw = 0;
    const auto random = [&](uint64_t bound) {
      return uniform_int(bound, kPackingSeed, round, draw++);
    };
    std::vector<size_t> chosen;
    size_t roomiest = 0;
    for (size_t b = 1; b < current.size(); ++b) {
      if (room_of(current[b]) > room_of(current[roomiest])) roomiest = b;
    }
    chosen.push_back(roomiest);
    const size_t want = std::min<size_t>(current.size(), 3 + random(6));
    while (chosen.size() < want) {
      const size_t b = random(current.size());
      if (std::find(chosen.begin(), chosen.end(), b) == chosen.end()) chosen.push_back(b);
    }
    std::vector<int32_t> items;
    int64_t before = 0;
    for (const size_t b : chosen) {
      items.insert(items.end(), current[b].begin(), current[b].end());
      const int64_t fill = capacity_ - room_of(current[b]);
      before += fill * fill;
    }
    std::sort(items.begin(), items.end(), [&](int32_t x, int32_t y) {
      return sizes_[x] != sizes_[y] ? sizes_[x] > sizes_[y] : x < y;
    });
    if (items.size() > 2) std::swap(items[0], items[random(items.size())]);
    const auto lead = items.front();
    auto bins = fill_with_lead(lead, {items.begin() + 1, items.end()});
    spent_ += static_cast<int64_t>(current.size());
    int64_t after = 0;
    for (const auto& bin : bins) {
      const int64_t fill = capacity_ - room_of(bin);
      after += fill * fill;
    }
    if (bins.size() > chosen.size() || (bins.size() == chosen.size() && after < before)) return;
    std::sort(chosen.begin(), chosen.end());
    for (size_t k = chosen.size(); k-- > 0;) {
      current.erase(current.begin() + static_cast<int64_t>(chosen[k]));
    }
    current.insert(current.end(), bins.begin(), bins.end());
    offer(current);
  }

  BinItems fill_with_lead(int32_t lead, std::vector<int32_t> rest) {
    std::sort(rest.begin(), rest.end(), [&](int32_t x, int32_t y) {
      return sizes_[x] != sizes_[y] ? sizes_[x] > sizes_[y] : x < y;
    });
    rest.insert(rest.begin(), lead);
    return filler_.fill(std::move(rest), spent_);
  }

  std::span<const int64_t> sizes_;
  int64_t capacity_, target_, effort_;
  SlackFiller filler_;
  BinItems best_;
  int64_t spent_ = 0;
};

}  // namespace

int64_t bin_bound(std::span<const int64_t> sizes, int64_t capacity) {
  std::vector<int64_t> s;
  int64_t alone = 0;
  for (const int64_t size : sizes) {
    if (size > capacity) {
      ++alone;
    } else {
      s.push_back(size);
    }
  }
  std::sort(s.begin(), s.end());
  std::vector<int64_t> prefix(s.size() + 1, 0);
  for (size_t i = 0; i < s.size(); ++i) prefix[i + 1] = prefix[i] + s[i];
  const auto first_above = [&](int64_t value) {
    return static_cast<size_t>(std::upper_bound(s.begin(), s.end(), value) - s.begin());
  };
  const size_t half = first_above(capacity / 2);
  int64_t best = (prefix.back() + capacity - 1) / capacity;
  for (size_t k = 0; k < half; ++k) {
    if (k > 0 && s[k] == s[k - 1]) continue;
    const size_t large = std::max(first_above(capacity - s[k]), half);
    const auto num_large = static_cast<int64_t>(s.size() - large);
    const auto num_middle = static_cast<int64_t>(large - half);
    const int64_t room = num_middle * capacity - (prefix[large] - prefix[half]);
    const int64_t small = prefix[half] - prefix[k];
    const int64_t more = std::max<int64_t>(0, (small - room + capacity - 1) / capacity);
    best = std::max(best, num_large + num_middle + more);
  }
  if (half == 0) best = std::max(best, std::ssize(s));
  return alone + best;
}

BinItems best_fit_decreasing(std::span<const int64_t> sizes, int64_t capacity) {
  BinItems bins;
  std::set<std::pair<int64_t, int32_t>> rooms;  // (room, bin)
  for (const int32_t i : descending_order(sizes)) {
    if (sizes[i] > capacity) {
      bins.push_back({i});
      continue;
    }
    const auto fit = rooms.lower_bound({sizes[i], -1});
    int32_t bin = static_cast<int32_t>(bins.size());
    int64_t room = capacity;
    if (fit != rooms.end()) {
      std::tie(room, bin) = *fit;
      rooms.erase(fit);
      bins[bin].push_back(i);
    } else {
      bins.push_back({i});
    }
    rooms.emplace(room - sizes[i], bin);
  }
  return bins;
}

BinItems pack_bins(std::span<const int64_t> sizes, int64_t capacity, int64_t target,
                   int64_t effort) {
  return Packer(sizes, capacity, target, effort).run();
}

}  // namespace keel::balance
