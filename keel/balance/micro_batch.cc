#include "keel/balance/micro_batch.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "keel/base/error.h"

namespace keel::balance {
namespace {

// Items that stay together while a candidate is built: all of one group (or a part of one).
struct Atom {
  int64_t tokens = 0;  // own tokens of its items
  int64_t prefix = 0;  // paid once per bin and group
  int64_t group = -1;  // dense group number, -1: none
  std::vector<int32_t> items;
  int64_t whole() const { return tokens + prefix; }
};

struct Bin {
  int64_t tokens = 0;
  std::vector<int32_t> atoms;
  std::vector<int64_t> groups;  // whose prefix is paid

  int64_t cost_of(const Atom& atom) const {
    const bool paid =
        atom.group >= 0 && std::find(groups.begin(), groups.end(), atom.group) != groups.end();
    return atom.tokens + (paid ? 0 : atom.prefix);
  }
  void add(const Atom& atom, int32_t index) {
    tokens += cost_of(atom);
    atoms.push_back(index);
    if (atom.group >= 0 && cost_of(atom) != atom.tokens) groups.push_back(atom.group);
  }
};

using Bins = std::vector<Bin>;
struct Score {
  int64_t count;
  int64_t largest;
  int64_t total;
  auto operator<=>(const Score&) const = default;
};

Score score_of(const Bins& bins) {
  Score score{static_cast<int64_t>(bins.size()), 0, 0};
  for (const auto& bin : bins) {
    score.largest = std::max(score.largest, bin.tokens);
    score.total += bin.tokens;
  }
  return score;
}

void check_input(std::span<const PackItem> items, const PackLimits& limits) {
  KEEL_REQUIRE(limits.cap_tokens > 0, "[balance.micro_batch] expected cap_tokens > 0, got {}",
               limits.cap_tokens);
  KEEL_REQUIRE(limits.min_count >= 1, "[balance.micro_batch] expected min_count >= 1, got {}",
               limits.min_count);
  std::unordered_map<int64_t, int64_t> prefixes;
  for (size_t i = 0; i < items.size(); ++i) {
    const auto& item = items[i];
    KEEL_REQUIRE(item.tokens >= 0 && item.prefix_tokens >= 0,
                 "[balance.micro_batch] expected token counts >= 0, got {} + {} at item {}",
                 item.prefix_tokens, item.tokens, i);
    if (item.group < 0) continue;
    const auto [entry, fresh] = prefixes.emplace(item.group, item.prefix_tokens);
    KEEL_REQUIRE(entry->second == item.prefix_tokens,
                 "[balance.micro_batch] expected one prefix length in group {}, got {} and {}",
                 item.group, entry->second, item.prefix_tokens);
  }
}

// One atom per item, in input order; groups numbered by first appearance.
std::vector<Atom> single_atoms(std::span<const PackItem> items) {
  std::vector<Atom> atoms(items.size());
  std::unordered_map<int64_t, int64_t> numbers;
  for (size_t i = 0; i < items.size(); ++i) {
    const auto& item = items[i];
    atoms[i] = {item.tokens, item.prefix_tokens, -1, {static_cast<int32_t>(i)}};
    if (item.group < 0) continue;
    atoms[i].group =
        numbers.emplace(item.group, static_cast<int64_t>(numbers.size())).first->second;
  }
  return atoms;
}

// Groups that fit under the cap become one atom; the others stay single items.
std::vector<Atom> whole_atoms(const std::vector<Atom>& singles, int64_t cap) {
  std::vector<int64_t> size;
  for (const auto& a : singles) {
    if (a.group < 0) continue;
    if (a.group >= static_cast<int64_t>(size.size())) size.resize(a.group + 1, a.prefix);
    size[a.group] += a.tokens;
  }
  std::vector<int32_t> atom_of(size.size(), -1);
  std::vector<Atom> atoms;
  for (const auto& a : singles) {
    if (a.group < 0 || size[a.group] > cap || atom_of[a.group] < 0) {
      if (a.group >= 0 && size[a.group] <= cap) {
        atom_of[a.group] = static_cast<int32_t>(atoms.size());
      }
      atoms.push_back(a);
    } else {
      auto& whole = atoms[atom_of[a.group]];
      whole.tokens += a.tokens;
      whole.items.push_back(a.items[0]);
    }
  }
  return atoms;
}

// Longest first; members of a group one after the other, so that they tend to meet in a bin.
std::vector<int32_t> packing_order(const std::vector<Atom>& atoms, bool by_group) {
  std::vector<int64_t> weight(atoms.size());
  std::unordered_map<int64_t, int64_t> group_weight;
  for (const auto& a : atoms) {
    if (a.group >= 0) group_weight.try_emplace(a.group, a.prefix).first->second += a.tokens;
  }
  for (size_t i = 0; i < atoms.size(); ++i) {
    const auto& a = atoms[i];
    weight[i] = by_group && a.group >= 0 ? group_weight[a.group] : a.whole();
  }
  std::vector<int32_t> order(atoms.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t x, int32_t y) {
    if (weight[x] != weight[y]) return weight[x] > weight[y];
    if (by_group && atoms[x].group != atoms[y].group) return atoms[x].group < atoms[y].group;
    if (atoms[x].whole() != atoms[y].whole()) return atoms[x].whole() > atoms[y].whole();
    return x < y;
  });
  return order;
}

// First bin with room (a bin that already holds the group first); an atom over the cap gets an own
// bin. Stops early (empty result) once more than max_bins are needed.
Bins first_fit(const std::vector<Atom>& atoms, std::span<const int32_t> order, int64_t cap,
               size_t max_bins) {
  Bins bins;
  for (const int32_t index : order) {
    const auto& atom = atoms[index];
    int32_t best = -1;
    for (size_t b = 0; b < bins.size(); ++b) {
      const int64_t cost = bins[b].cost_of(atom);
      if (bins[b].tokens + cost > cap) continue;
      const bool shares = cost < atom.whole();
      if (best < 0 || shares) best = static_cast<int32_t>(b);
      if (shares || atom.group < 0) break;
    }
    if (best < 0) {
      if (bins.size() == max_bins) return {};
      best = static_cast<int32_t>(bins.size());
      bins.emplace_back();
    }
    bins[best].add(atom, index);
  }
  return bins;
}

// Exactly `count` bins, each atom to the bin that is smallest after taking it. May break the cap.
Bins level(const std::vector<Atom>& atoms, std::span<const int32_t> order, size_t count) {
  Bins bins(count);
  for (const int32_t index : order) {
    size_t best = 0;
    for (size_t b = 1; b < count; ++b) {
      if (bins[b].tokens + bins[b].cost_of(atoms[index]) <
          bins[best].tokens + bins[best].cost_of(atoms[index])) {
        best = b;
      }
    }
    bins[best].add(atoms[index], index);
  }
  return bins;
}

bool holds_cap(const Bins& bins, int64_t cap) {
  return std::all_of(bins.begin(), bins.end(),
                     [&](const Bin& bin) { return bin.tokens <= cap || bin.atoms.size() == 1; });
}

class MicroBatchPacker {
 public:
  MicroBatchPacker(std::span<const PackItem> items, const PackLimits& limits)
      : items_(items), limits_(limits) {
    singles_ = single_atoms(items);
    wholes_ = whole_atoms(singles_, limits.cap_tokens);
  }

  MicroBatchPlan pack() {
    size_t count = items_.size() + 1;
    for_each_order([&](const auto& atoms, const auto& order) {
      const auto bins = first_fit(atoms, order, limits_.cap_tokens, items_.size());
      if (bins.size() < count) count = bins.size();
    });
    count = improve_count(count);
    if (items_.empty()) count = 0;
    count = std::max(count, static_cast<size_t>(limits_.min_count));
    for_each_order([&](const auto& atoms, const auto& order) {
      offer(atoms, level(atoms, order, count));
      shrink_cap(atoms, order, count);
    });
    return std::move(best_);
  }

 private:
  template <class F>
  void for_each_order(const F& f) {
    for (const auto* atoms : {&wholes_, &singles_}) {
      for (const bool by_group : {true, false}) f(*atoms, packing_order(*atoms, by_group));
    }
  }

  // Longest-first into fewer bins sometimes fits where first-fit does not.
  size_t improve_count(size_t count) {
    while (count > 1) {
      bool fits = false;
      for_each_order([&](const auto& atoms, const auto& order) {
        fits = fits || holds_cap(level(atoms, order, count - 1), limits_.cap_tokens);
      });
      if (!fits) break;
      --count;
    }
    return count;
  }

  // MULTIFIT: bisect on the smallest cap with which first-fit still needs at most `count` bins.
  void shrink_cap(const std::vector<Atom>& atoms, std::span<const int32_t> order, size_t count) {
    int64_t low = 0;
    int64_t high = limits_.cap_tokens;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      auto bins = first_fit(atoms, order, middle, count);
      if (bins.empty() && !atoms.empty()) {
        low = middle + 1;
      } else {
        high = middle;
        bins.resize(count);
        offer(atoms, bins);
      }
    }
    auto bins = first_fit(atoms, order, limits_.cap_tokens, count);
    if (bins.empty() && !atoms.empty()) return;
    bins.resize(count);
    offer(atoms, bins);
  }

  void offer(const std::vector<Atom>& atoms, const Bins& bins) {
    if (!holds_cap(bins, limits_.cap_tokens)) return;
    // An atom of several items is never over the cap, so a lone atom over it is a lone item.
    const auto score = score_of(bins);
    if (have_best_ && !(score < best_score_)) return;
    have_best_ = true;
    best_score_ = score;
    best_.micro_batches.assign(bins.size(), {});
    for (size_t b = 0; b < bins.size(); ++b) {
      auto& out = best_.micro_batches[b];
      out.tokens = bins[b].tokens;
      for (const int32_t a : bins[b].atoms) {
        out.items.insert(out.items.end(), atoms[a].items.begin(), atoms[a].items.end());
      }
      std::sort(out.items.begin(), out.items.end());
    }
    std::stable_sort(best_.micro_batches.begin(), best_.micro_batches.end(),
                     [](const auto& x, const auto& y) { return x.tokens > y.tokens; });
  }

  std::span<const PackItem> items_;
  PackLimits limits_;
  std::vector<Atom> singles_;
  std::vector<Atom> wholes_;
  MicroBatchPlan best_;
  Score best_score_{};
  bool have_best_ = false;
};

int64_t tokens_of(std::span<const PackItem> items, std::span<const int32_t> members) {
  int64_t tokens = 0;
  std::vector<int64_t> seen;
  for (const int32_t i : members) {
    tokens += items[i].tokens;
    const int64_t group = items[i].group;
    if (group >= 0 && std::find(seen.begin(), seen.end(), group) != seen.end()) continue;
    if (group >= 0) seen.push_back(group);
    tokens += items[i].prefix_tokens;
  }
  return tokens;
}

}  // namespace

MicroBatchPlan pack_micro_batches(std::span<const PackItem> items, const PackLimits& limits) {
  check_input(items, limits);
  return MicroBatchPacker(items, limits).pack();
}

std::string validate(std::span<const PackItem> items, const PackLimits& limits,
                     const MicroBatchPlan& plan) {
  std::vector<int32_t> seen(items.size(), 0);
  if (plan.micro_batches.size() < static_cast<size_t>(limits.min_count)) {
    return fmt::format("{} micro-batches, at least {} wanted", plan.micro_batches.size(),
                       limits.min_count);
  }
  for (size_t b = 0; b < plan.micro_batches.size(); ++b) {
    const auto& mb = plan.micro_batches[b];
    for (const int32_t i : mb.items) {
      if (i < 0 || static_cast<size_t>(i) >= items.size()) return fmt::format("no item {}", i);
      if (++seen[i] > 1) return fmt::format("item {} is packed twice", i);
    }
    if (!std::is_sorted(mb.items.begin(), mb.items.end())) {
      return fmt::format("items of micro-batch {} are not ascending", b);
    }
    const int64_t tokens = tokens_of(items, mb.items);
    if (tokens != mb.tokens) {
      return fmt::format("micro-batch {} states {} tokens, has {}", b, mb.tokens, tokens);
    }
    if (tokens > limits.cap_tokens && mb.items.size() > 1) {
      return fmt::format("micro-batch {} has {} tokens, cap {}", b, tokens, limits.cap_tokens);
    }
  }
  const auto lost = std::find(seen.begin(), seen.end(), 0);
  return lost == seen.end() ? "" : fmt::format("item {} is not packed", lost - seen.begin());
}

}  // namespace keel::balance
