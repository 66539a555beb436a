#include "keel/balance/expert_placement.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <queue>

#include "keel/base/error.h"
#include "keel/base/rng.h"

namespace keel::balance {
namespace {

constexpr uint64_t kPlacementSeed = 0xe91b;
constexpr int32_t kTradeGpus = 8;  // a replica is traded on one of so many lightest GPUs

void check(std::span<const double> loads, const ExpertLayout& l) {
  KEEL_REQUIRE(l.num_experts >= 1 && std::ssize(loads) == l.num_experts,
               "[balance.experts] expected loads of {} experts, got {}", l.num_experts,
               loads.size());
  KEEL_REQUIRE(
      l.num_gpus >= 1 && l.num_replicas >= l.num_experts && l.num_replicas % l.num_gpus == 0,
      "[balance.experts] expected replicas >= {} experts in equal parts on {} GPUs, got "
      "{}; try {}",
      l.num_experts, l.num_gpus, l.num_replicas,
      (std::max(l.num_experts, l.num_replicas) + l.num_gpus - 1) / std::max(l.num_gpus, 1) *
          l.num_gpus);
  for (size_t e = 0; e < loads.size(); ++e) {
    KEEL_REQUIRE(loads[e] >= 0 && std::isfinite(loads[e]),
                 "[balance.experts] expected loads >= 0, got {} at expert {}", loads[e], e);
  }
}

// Replicas so that the largest share is as small as it can be.
std::vector<int32_t> replica_counts(std::span<const double> loads, int32_t num_replicas) {
  std::vector<int32_t> count(loads.size(), 1);
  using Entry = std::pair<double, int32_t>;  // (share, -expert)
  std::priority_queue<Entry> shares;
  for (size_t e = 0; e < loads.size(); ++e) shares.emplace(loads[e], -static_cast<int32_t>(e));
  for (auto r = static_cast<int32_t>(loads.size()); r < num_replicas; ++r) {
    const int32_t e = -shares.top().second;
    shares.pop();
    shares.emplace(loads[e] / ++count[e], -e);
  }
  return count;
}

// A swap of the replicas in two slots, or (expert >= 0) a replica of `expert` in place of what is
// in `slot`. gain: by how much the largest load exceeds the GPUs that are touched; 0 = nothing
// found.
struct Action {
  int32_t slot = -1;
  int32_t other = -1;
  int32_t expert = -1;
  double gain = 0;
};

class Search {
 public:
  Search(std::span<const double> loads, const ExpertLayout& layout, const PlacementOptions& options)
      : weight_(loads.begin(), loads.end()), layout_(layout), q_(layout.slots_per_gpu()) {
    const double total = std::accumulate(loads.begin(), loads.end(), 0.0);
    mean_ = total / layout.num_gpus;
    target_ = std::max(mean_, mean_ * imbalance_bound(loads, layout)) * (1 + options.tolerance);
    effort_ = options.effort;
    eps_ = mean_ * 1e-9;
  }

  void start_from_scratch() {
    count_ = replica_counts(weight_, layout_.num_replicas);
    std::vector<std::pair<double, int32_t>> items;
    for (int32_t e = 0; e < layout_.num_experts; ++e) {
      items.insert(items.end(), count_[e], {-share(e), e});
    }
    std::stable_sort(items.begin(), items.end());
    slots_.assign(layout_.num_replicas, -1);
    load_.assign(layout_.num_gpus, 0);
    std::vector<int32_t> used(layout_.num_gpus, 0);
    for (const auto& [negated, e] : items) {
      int32_t best = -1;  // the lightest GPU with room, one without this expert if there is one
      bool best_has = false;
      for (int32_t g = 0; g < layout_.num_gpus; ++g) {
        if (used[g] == q_) continue;
        const auto* begin = slots_.data() + g * q_;
        const bool has = count_[e] > 1 && std::find(begin, begin + used[g], e) != begin + used[g];
        if (best < 0 || (best_has && !has) || (best_has == has && load_[g] < load_[best])) {
          best = g;
          best_has = has;
        }
      }
      slots_[best * q_ + used[best]++] = e;
      load_[best] -= negated;
    }
    reload();
  }

  void start_from(const ExpertPlacement& placement) {
    slots_ = placement.expert_of;
    count_ = placement.count;
    reload();
  }

  // Descent, then random changes that are kept where they are not worse.
  void improve() {
    descend();
    auto best_slots = slots_;
    auto best_count = count_;
    double best = largest();
    for (uint64_t round = 0; spent_ < effort_ && best > target_; ++round) {
      shake(round);
      descend();
      if (largest() > best + eps_) {
        slots_ = best_slots;
        count_ = best_count;
        reload();
        continue;
      }
      best = largest();
      best_slots = slots_;
      best_count = count_;
    }
    slots_ = best_slots;
    count_ = best_count;
  }

  // The first step found that lowers the largest load, or the number of GPUs at it.
  bool step() {
    const int32_t a = hottest();
    if (load_[a] <= target_) return false;
    sort_gpus();
    for (const int32_t b : order_) {
      if (b == a) continue;
      const Action action = find_exchange(a, b);
      if (action.gain > 0) {
        apply(action);
        return true;
      }
      if (spent_ >= effort_) return false;
    }
    const Action action = find_trade(a);
    if (action.gain > 0) apply(action);
    return action.gain > 0;
  }

  // The step that lowers the largest load most for each replica that must be fetched: one in a
  // trade, two in an exchange.
  bool thrifty_step() {
    const int32_t a = hottest();
    if (load_[a] <= target_) return false;
    Action best;
    for (int32_t b = 0; b < layout_.num_gpus; ++b) {
      if (b == a) continue;
      Action action = find_exchange(a, b);
      action.gain /= 2;
      if (action.gain > best.gain) best = action;
    }
    for (const int32_t e : experts_of(a)) {
      for (int32_t s = 0; s < layout_.num_replicas; ++s) {
        const double gain = trade_gain(a, e, s);
        if (gain > eps_ && gain > best.gain) {
          best = {.slot = s, .other = -1, .expert = e, .gain = gain};
        }
      }
      if (spent_ >= effort_) break;
    }
    if (best.gain <= 0) return false;
    apply(best);
    return true;
  }

  ExpertPlacement result() const { return {slots_, count_}; }
  double largest() const { return load_[hottest()]; }

 private:
  double share(int32_t e) const { return weight_[e] / count_[e]; }

  int32_t hottest() const {
    return static_cast<int32_t>(std::max_element(load_.begin(), load_.end()) - load_.begin());
  }

  void reload() {
    load_.assign(layout_.num_gpus, 0);
    gpus_of_.assign(layout_.num_experts, {});
    for (int32_t s = 0; s < layout_.num_replicas; ++s) {
      load_[s / q_] += share(slots_[s]);
      gpus_of_[slots_[s]].push_back(s / q_);
    }
  }

  void sort_gpus() {
    order_.resize(layout_.num_gpus);
    std::iota(order_.begin(), order_.end(), 0);
    std::sort(order_.begin(), order_.end(), [&](int32_t x, int32_t y) {
      return load_[x] != load_[y] ? load_[x] < load_[y] : x < y;
    });
  }

  void descend() {
    while (spent_ < effort_ && step()) {
    }
  }

  // The pair of replicas that levels GPUs a and b best when swapped.
  Action find_exchange(int32_t a, int32_t b) {
    const double gap = load_[a] - load_[b];
    Action found;
    if (gap <= 2 * eps_) return found;
    double best = gap / 2 - eps_;  // distance from an even split; gap / 2 is no change
    for (int32_t i = a * q_; i < (a + 1) * q_; ++i) {
      const double u = share(slots_[i]);
      for (int32_t j = b * q_; j < (b + 1) * q_; ++j) {
        const double distance = std::abs(u - share(slots_[j]) - gap / 2);
        if (distance < best) {
          best = distance;
          found = {.slot = i, .other = j, .expert = -1, .gain = gap / 2 - distance};
        }
      }
    }
    spent_ += q_ * q_;
    return found;
  }

  // Experts of a GPU, hottest share first.
  std::vector<int32_t> experts_of(int32_t gpu) const {
    std::vector<int32_t> experts(slots_.begin() + gpu * q_, slots_.begin() + (gpu + 1) * q_);
    std::sort(experts.begin(), experts.end(), [&](int32_t x, int32_t y) {
      return share(x) != share(y) ? share(x) > share(y) : x < y;
    });
    experts.erase(std::unique(experts.begin(), experts.end()), experts.end());
    return experts;
  }

  // One more replica for an expert of the hottest GPU in place of a spare one on one of the
  // lightest GPUs: the first such trade after which all GPUs it touches are below the largest load.
  Action find_trade(int32_t a) {
    for (const int32_t e : experts_of(a)) {
      for (int32_t k = 0; k < std::min(kTradeGpus, layout_.num_gpus); ++k) {
        const int32_t b = order_[k];
        for (int32_t s = b * q_; s < (b + 1) * q_; ++s) {
          const double gain = trade_gain(a, e, s);
          if (gain > eps_) return {.slot = s, .other = -1, .expert = e, .gain = gain};
        }
      }
      if (spent_ >= effort_) break;
    }
    return {};
  }

  // By how much the largest load exceeds all GPUs that the trade touches; <= 0: it does not help.
  double trade_gain(int32_t a, int32_t e, int32_t slot) {
    const int32_t f = slots_[slot];
    if (count_[f] < 2 || f == e) return 0;
    const double e_saves = share(e) - weight_[e] / (count_[e] + 1);
    const double f_adds = weight_[f] / (count_[f] - 1) - share(f);
    const int32_t b = slot / q_;
    ++spent_;
    // GPU b: what replica f weighs with one less, one time, becomes what e weighs with one more.
    if (load_[b] - share(f) + share(e) - e_saves >= load_[a]) return 0;
    touched_.clear();
    const auto add = [&](int32_t g, double delta) {
      for (auto& [gpu, sum] : touched_) {
        if (gpu == g) {
          sum += delta;
          return;
        }
      }
      touched_.emplace_back(g, delta);
    };
    add(b, share(e) - e_saves - share(f) - f_adds);  // f_adds comes back below
    for (const int32_t g : gpus_of_[f]) add(g, f_adds);
    for (const int32_t g : gpus_of_[e]) add(g, -e_saves);
    spent_ += std::ssize(touched_);
    double largest = 0;
    for (const auto& [gpu, change] : touched_) largest = std::max(largest, load_[gpu] + change);
    return load_[a] - largest;
  }

  void apply(const Action& action) {
    if (action.expert >= 0) {
      apply_trade(action.expert, action.slot);
      return;
    }
    const int32_t x = slots_[action.slot];
    const int32_t y = slots_[action.other];
    const int32_t a = action.slot / q_;
    const int32_t b = action.other / q_;
    *std::find(gpus_of_[x].begin(), gpus_of_[x].end(), a) = b;
    *std::find(gpus_of_[y].begin(), gpus_of_[y].end(), b) = a;
    std::swap(slots_[action.slot], slots_[action.other]);
    load_[a] += share(y) - share(x);
    load_[b] += share(x) - share(y);
  }

  void apply_trade(int32_t e, int32_t slot) {
    ++count_[e];
    --count_[slots_[slot]];
    slots_[slot] = e;
    reload();
  }

  void shake(uint64_t round) {
    uint64_t draw = 0;
    const auto random = [&](uint64_t bound) {
      return static_cast<int32_t>(uniform_int(bound, kPlacementSeed, round, draw++));
    };
    const int32_t a = hottest();
    for (int32_t k = 0; k < 3; ++k) {
      const int32_t i = k == 0 ? a * q_ + random(q_) : random(layout_.num_replicas);
      const int32_t j = random(layout_.num_replicas);
      if (random(3) == 0 && count_[slots_[j]] > 1 && slots_[i] != slots_[j]) {
        --count_[slots_[j]];
        ++count_[slots_[i]];
        slots_[j] = slots_[i];
      } else {
        std::swap(slots_[i], slots_[j]);
      }
    }
    reload();
    spent_ += layout_.num_replicas;
  }

  std::vector<double> weight_;
  ExpertLayout layout_;
  int32_t q_;
  double mean_ = 0, target_ = 0, eps_ = 0;
  std::vector<int32_t> slots_, count_, order_;
  std::vector<double> load_;
  std::vector<std::vector<int32_t>> gpus_of_;        // [expert] GPU of each replica
  std::vector<std::pair<int32_t, double>> touched_;  // (GPU, change of its load)
  int64_t effort_ = 0, spent_ = 0;
};

}  // namespace

ExpertPlacement place_experts(std::span<const double> loads, const ExpertLayout& layout,
                              const PlacementOptions& options) {
  check(loads, layout);
  Search search(loads, layout, options);
  search.start_from_scratch();
  search.improve();
  return search.result();
}

ExpertPlacement follow_load(std::span<const double> loads, const ExpertLayout& layout,
                            const ExpertPlacement& current, int32_t max_moved,
                            const PlacementOptions& options) {
  check(loads, layout);
  const auto fault = validate(layout, current);
  KEEL_REQUIRE(fault.empty(), "[balance.experts] expected a valid current placement: {}", fault);
  Search search(loads, layout, options);
  search.start_from(current);
  auto kept = current;
  while (search.thrifty_step()) {
    auto next = search.result();
    if (count_moved(layout, current, next) > max_moved) break;
    kept = std::move(next);
  }
  return kept;
}

double imbalance(std::span<const double> loads, const ExpertLayout& layout,
                 const ExpertPlacement& placement) {
  const double total = std::accumulate(loads.begin(), loads.end(), 0.0);
  if (total <= 0) return 1;
  double largest = 0;
  const int32_t q = layout.slots_per_gpu();
  for (int32_t g = 0; g < layout.num_gpus; ++g) {
    double load = 0;
    for (int32_t s = g * q; s < (g + 1) * q; ++s) {
      const int32_t e = placement.expert_of[s];
      load += loads[e] / placement.count[e];
    }
    largest = std::max(largest, load);
  }
  return largest * layout.num_gpus / total;
}

double imbalance_bound(std::span<const double> loads, const ExpertLayout& layout) {
  const double total = std::accumulate(loads.begin(), loads.end(), 0.0);
  if (total <= 0) return 1;
  const auto count = replica_counts(loads, layout.num_replicas);
  double largest = 0;
  for (size_t e = 0; e < loads.size(); ++e) largest = std::max(largest, loads[e] / count[e]);
  return std::max(1.0, largest * layout.num_gpus / total);
}

int32_t count_moved(const ExpertLayout& layout, const ExpertPlacement& from,
                    const ExpertPlacement& to) {
  const int32_t q = layout.slots_per_gpu();
  std::vector<int32_t> balance(layout.num_experts, 0);
  int32_t moved = 0;
  for (int32_t g = 0; g < layout.num_gpus; ++g) {
    for (int32_t s = g * q; s < (g + 1) * q; ++s) ++balance[from.expert_of[s]];
    for (int32_t s = g * q; s < (g + 1) * q; ++s) {
      if (--balance[to.expert_of[s]] < 0) ++moved;
    }
    for (int32_t s = g * q; s < (g + 1) * q; ++s) {
      balance[from.expert_of[s]] = balance[to.expert_of[s]] = 0;
    }
  }
  return moved;
}

std::string validate(const ExpertLayout& layout, const ExpertPlacement& placement) {
  if (std::ssize(placement.expert_of) != layout.num_replicas ||
      std::ssize(placement.count) != layout.num_experts) {
    return fmt::format("{} slots and {} counts, expected {} and {}", placement.expert_of.size(),
                       placement.count.size(), layout.num_replicas, layout.num_experts);
  }
  std::vector<int32_t> count(layout.num_experts, 0);
  for (size_t s = 0; s < placement.expert_of.size(); ++s) {
    const int32_t e = placement.expert_of[s];
    if (e < 0 || e >= layout.num_experts) return fmt::format("no expert {} (slot {})", e, s);
    ++count[e];
  }
  for (int32_t e = 0; e < layout.num_experts; ++e) {
    if (count[e] == 0) return fmt::format("expert {} has no replica", e);
    if (count[e] != placement.count[e]) {
      return fmt::format("expert {} states {} replicas, has {}", e, placement.count[e], count[e]);
    }
  }
  return "";
}

RouterForecast::RouterForecast(int32_t num_experts)
    : level_(num_experts, 0), deviation_(num_experts, 0) {
  KEEL_REQUIRE(num_experts >= 1, "[balance.experts] expected num_experts >= 1, got {}",
               num_experts);
}

void RouterForecast::observe(std::span<const double> loads) {
  KEEL_REQUIRE(loads.size() == level_.size(), "[balance.experts] expected {} loads, got {}",
               level_.size(), loads.size());
  ++batches_;
  // The level averages all batches at first and about the last 14 later on.
  const double slow = std::max(1.0 / static_cast<double>(batches_), 0.07);
  constexpr double kFast = 0.7;
  for (size_t e = 0; e < loads.size(); ++e) {
    const double x = std::log(loads[e] + 0.5);
    level_[e] += slow * (x - level_[e]);
    deviation_[e] += kFast * (x - level_[e] - deviation_[e]);
  }
}

std::vector<double> RouterForecast::next() const {
  constexpr double kFades = 0.95;
  std::vector<double> share(level_.size());
  double total = 0;
  for (size_t e = 0; e < share.size(); ++e) {
    share[e] = std::exp(level_[e] + kFades * deviation_[e]);
    total += share[e];
  }
  for (double& s : share) s /= total;
  return share;
}

}  // namespace keel::balance
