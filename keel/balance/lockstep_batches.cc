#include "keel/balance/lockstep_batches.h"

#include <algorithm>
#include <numeric>
#include <queue>

#include "keel/balance/bin_packing.h"
#include "keel/base/error.h"

namespace keel::balance {
namespace {

// Limit of one descent, in looks at an item for each item.
constexpr int64_t kLooks = 60;

struct Batch {
  std::vector<int32_t> items;  // descending by length
  int64_t tokens = 0;
  int64_t cost = 0;
};

class LockstepPlanner {
 public:
  LockstepPlanner(std::span<const int64_t> lengths, const LockstepTask& task)
      : lengths_(lengths),
        task_(task),
        costs_(sequence_costs(lengths, task.cost, "balance.lockstep")),
        order_(lengths.size()) {
    std::iota(order_.begin(), order_.end(), 0);
    std::sort(order_.begin(), order_.end(), [&](int32_t x, int32_t y) {
      return lengths[x] != lengths[y] ? lengths[x] > lengths[y] : x < y;
    });
  }

  LockstepPlan plan() {
    LockstepPlan out;
    for (size_t i = 0; i < lengths_.size(); ++i) {
      if (lengths_[i] > task_.cap_tokens) out.oversized.push_back(static_cast<int32_t>(i));
    }
    const int64_t ranks = task_.num_ranks;
    const int64_t bound = bin_bound(lengths_, task_.cap_tokens);
    out.lower_bound = static_cast<int32_t>((bound + ranks - 1) / ranks);
    const auto packed =
        pack_bins(lengths_, task_.cap_tokens, out.lower_bound * ranks, task_.effort);
    positions_ = (std::ssize(packed) + ranks - 1) / ranks;
    num_batches_ = static_cast<size_t>(positions_ * ranks);

    std::vector<std::vector<Batch>> starts;
    starts.push_back(from_bins(packed));
    if (auto rows = fill_rows(); !rows.empty()) starts.push_back(std::move(rows));
    if (auto level = deal(order_, num_batches_, {}); !level.empty()) {
      starts.push_back(std::move(level));
    }
    std::vector<Batch> best;
    int64_t best_cost = 0;
    for (auto& start : starts) {
      const int64_t cost = descend(start);
      if (best.empty() || cost < best_cost) {
        best = std::move(start);
        best_cost = cost;
      }
    }
    arrange(best, out);
    return out;
  }

 private:
  void put(Batch& batch, int32_t i) const {
    batch.items.push_back(i);
    batch.tokens += lengths_[i];
    batch.cost += costs_[i];
  }

  bool has_room(const Batch& batch, int32_t i) const {
    return batch.items.empty() || batch.tokens + lengths_[i] <= task_.cap_tokens;
  }

  // Packed bins; while there are too few, the dearest one with several items is halved by cost.
  std::vector<Batch> from_bins(const BinItems& bins) const {
    const auto cheaper = [](const Batch& a, const Batch& b) { return a.cost < b.cost; };
    std::vector<Batch> single, many;
    const auto add = [&](Batch batch) {
      if (batch.items.size() < 2) {
        single.push_back(std::move(batch));
      } else {
        many.push_back(std::move(batch));
        std::push_heap(many.begin(), many.end(), cheaper);
      }
    };
    for (const auto& bin : bins) {
      Batch batch;
      for (const int32_t i : bin) put(batch, i);
      add(std::move(batch));
    }
    while (single.size() + many.size() < num_batches_ && !many.empty()) {
      std::pop_heap(many.begin(), many.end(), cheaper);
      Batch whole = std::move(many.back());
      many.pop_back();
      sort_items(whole);
      Batch half[2];
      for (const int32_t i : whole.items) put(half[half[1].cost < half[0].cost ? 1 : 0], i);
      if (half[1].items.empty()) {  // items without cost all stayed in one half
        put(half[1], half[0].items.back());
        half[0].tokens -= lengths_[half[0].items.back()];
        half[0].items.pop_back();
      }
      add(std::move(half[0]));
      add(std::move(half[1]));
    }
    many.insert(many.end(), single.begin(), single.end());
    many.resize(num_batches_);
    return many;
  }

  void sort_items(Batch& batch) const {
    std::sort(batch.items.begin(), batch.items.end(), [&](int32_t x, int32_t y) {
      return lengths_[x] != lengths_[y] ? lengths_[x] > lengths_[y] : x < y;
    });
  }

  // Longest first to the cheapest batch with room. Empty if some sequence finds none.
  std::vector<Batch> deal(std::span<const int32_t> items, size_t count,
                          std::vector<Batch> before) const {
    const size_t first = before.size();
    std::vector<Batch> batches = std::move(before);
    batches.resize(first + count);
    // Lengths fall, so a batch with room for one sequence has room for all later ones until it
    // takes one; the others wait for a sequence short enough.
    using Entry = std::pair<int64_t, size_t>;  // (cost or room, batch)
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
    std::priority_queue<Entry> waiting;
    for (size_t b = first; b < batches.size(); ++b) open.emplace(0, b);
    for (const int32_t i : items) {
      while (!waiting.empty() && waiting.top().first >= lengths_[i]) {
        const size_t b = waiting.top().second;
        waiting.pop();
        open.emplace(batches[b].cost, b);
      }
      if (open.empty()) return {};
      const size_t b = open.top().second;
      open.pop();
      put(batches[b], i);
      const int64_t room = task_.cap_tokens - batches[b].tokens;
      if (room >= 0) waiting.emplace(room, b);
    }
    return batches;
  }

  // Position after position: while the longest sequence left costs more than a level share, it sets
  // the cost of its position and the other ranks are filled up to that; what is left is levelled.
  std::vector<Batch> fill_rows() const {
    std::vector<int32_t> left = order_;
    std::vector<Batch> done;
    const auto ranks = static_cast<size_t>(task_.num_ranks);
    __int128 total = 0;
    for (const int64_t c : costs_) total += c;
    for (int64_t rows = positions_; rows > 0 && !left.empty(); --rows) {
      const int64_t limit = costs_[left.front()];
      if (rows == 1 || limit <= total / (rows * task_.num_ranks)) break;
      std::vector<Batch> row(ranks);
      std::vector<int32_t> rest;
      for (const int32_t i : left) {
        Batch* chosen = nullptr;
        for (Batch& batch : row) {
          if (!has_room(batch, i) || batch.cost + costs_[i] > limit) continue;
          if (chosen == nullptr || batch.cost < chosen->cost) chosen = &batch;
        }
        if (chosen == nullptr) {
          rest.push_back(i);
        } else {
          put(*chosen, i);
          total -= costs_[i];
        }
      }
      left = std::move(rest);
      done.insert(done.end(), row.begin(), row.end());
    }
    if (done.empty()) return {};
    const size_t count = num_batches_ - done.size();
    return deal(left, count, std::move(done));
  }

  static void sort_batches(std::vector<Batch>& batches) {
    std::stable_sort(batches.begin(), batches.end(),
                     [](const Batch& a, const Batch& b) { return a.cost > b.cost; });
  }

  int64_t lockstep_cost(const std::vector<Batch>& sorted) const {
    int64_t sum = 0;
    for (size_t b = 0; b < sorted.size(); b += task_.num_ranks) sum += sorted[b].cost;
    return sum;
  }

  // Takes cost from the dearest batch of each position and gives it to batches that are cheaper
  // than the dearest of theirs, until that fails everywhere. Returns the lockstep cost.
  int64_t descend(std::vector<Batch>& batches) const {
    const auto ranks = static_cast<size_t>(task_.num_ranks);
    sort_batches(batches);
    if (ranks == 1) return lockstep_cost(batches);
    for (auto& batch : batches) sort_items(batch);
    int64_t budget = static_cast<int64_t>(lengths_.size() + batches.size()) * kLooks;
    for (bool improved = true; improved && budget > 0;) {
      improved = false;
      for (size_t row = 0; row < batches.size() && budget > 0; row += ranks) {
        while (budget > 0 && relieve(batches, row, budget)) improved = true;
      }
      sort_batches(batches);
    }
    return lockstep_cost(batches);
  }

  // The first batch of the row is its dearest before and after.
  bool relieve(std::vector<Batch>& batches, size_t row, int64_t& budget) const {
    const auto ranks = static_cast<size_t>(task_.num_ranks);
    Batch& from = batches[row];
    const int64_t second = batches[row + 1].cost;
    if (from.items.size() < 2 && lengths_.size() < batches.size()) return false;
    for (size_t b = batches.size(); b-- > 0;) {
      if (b % ranks == 0) continue;
      Batch& to = batches[b];
      const int64_t room = batches[b / ranks * ranks].cost - to.cost;
      const bool same_row = b / ranks * ranks == row;
      if (room <= 0) continue;
      budget -= static_cast<int64_t>(from.items.size() + to.items.size());
      const int64_t most = same_row ? room - 1 : room;
      if (!shift(from, to, most, std::max<int64_t>(from.cost - second, 1))) continue;
      size_t dearest = row;  // another batch of the row may lead now
      for (size_t k = row + 1; k < row + ranks; ++k) {
        if (batches[k].cost > batches[dearest].cost) dearest = k;
      }
      std::swap(batches[row], batches[dearest]);
      return true;
    }
    return false;
  }

  // Moves an item, or swaps two, so that between 1 and `most` of cost goes over: the exchange
  // nearest to `wanted`. Keeps the cap.
  bool shift(Batch& from, Batch& to, int64_t most, int64_t wanted) const {
    int64_t best = -1;
    int32_t best_i = -1;
    int32_t best_j = -1;
    const auto offer = [&](int32_t i, int32_t j) {
      const int64_t delta = costs_[from.items[i]] - (j < 0 ? 0 : costs_[to.items[j]]);
      if (delta <= 0 || delta > most) return;
      const int64_t moved = lengths_[from.items[i]] - (j < 0 ? 0 : lengths_[to.items[j]]);
      if (to.tokens + moved > task_.cap_tokens) return;
      const int64_t distance = std::abs(delta - wanted);
      if (best >= 0 && distance >= best) return;
      best = distance;
      best_i = i;
      best_j = j;
    };
    const auto num_to = static_cast<int32_t>(to.items.size());
    int32_t j = 0;
    for (int32_t i = 0; i < static_cast<int32_t>(from.items.size()); ++i) {
      if (from.items.size() > 1) offer(i, -1);
      const int64_t c = costs_[from.items[i]];
      while (j < num_to && c - costs_[to.items[j]] < std::min(wanted, most)) ++j;
      if (j < num_to) offer(i, j);
      if (j > 0) offer(i, j - 1);
    }
    if (best < 0) return false;
    const int32_t x = from.items[best_i];
    from.items.erase(from.items.begin() + best_i);
    from.cost -= costs_[x];
    from.tokens -= lengths_[x];
    if (best_j >= 0) {
      const int32_t y = to.items[best_j];
      to.items.erase(to.items.begin() + best_j);
      to.cost -= costs_[y];
      to.tokens -= lengths_[y];
      put(from, y);
    }
    put(to, x);
    sort_items(from);
    sort_items(to);
    return true;
  }

  // Position j holds the j-th `num_ranks` dearest batches; the dearest of a position goes to the
  // rank with the least cost so far.
  void arrange(std::vector<Batch>& batches, LockstepPlan& out) const {
    const auto ranks = static_cast<size_t>(task_.num_ranks);
    out.lockstep_cost = lockstep_cost(batches);
    out.ranks.assign(ranks, std::vector<std::vector<int32_t>>(positions_));
    std::vector<int64_t> total(ranks, 0);
    std::vector<size_t> by_total(ranks);
    // Rows from dear to cheap fill the places from the middle outwards.
    std::vector<size_t> place(positions_);
    for (size_t k = 0; k < place.size(); ++k) {  // k-th cheapest: ends first
      const size_t at = k % 2 == 0 ? k / 2 : place.size() - 1 - k / 2;
      place[place.size() - 1 - k] = at;
    }
    for (size_t row = 0; row < place.size(); ++row) {
      std::iota(by_total.begin(), by_total.end(), 0);
      std::stable_sort(by_total.begin(), by_total.end(),
                       [&](size_t x, size_t y) { return total[x] < total[y]; });
      for (size_t k = 0; k < ranks; ++k) {
        Batch& batch = batches[row * ranks + k];
        std::sort(batch.items.begin(), batch.items.end());
        total[by_total[k]] += batch.cost;
        out.ranks[by_total[k]][place[row]] = std::move(batch.items);
      }
    }
  }

  std::span<const int64_t> lengths_;
  const LockstepTask& task_;
  std::vector<int64_t> costs_;
  std::vector<int32_t> order_;  // longest first
  int64_t positions_ = 0;
  size_t num_batches_ = 0;
};

}  // namespace

LockstepPlan plan_lockstep_batches(std::span<const int64_t> lengths, const LockstepTask& task) {
  KEEL_REQUIRE(task.cap_tokens >= 1, "[balance.lockstep] expected cap_tokens >= 1, got {}",
               task.cap_tokens);
  KEEL_REQUIRE(task.num_ranks >= 1, "[balance.lockstep] expected num_ranks >= 1, got {}",
               task.num_ranks);
  KEEL_REQUIRE(task.effort >= 0, "[balance.lockstep] expected effort >= 0, got {}", task.effort);
  return LockstepPlanner(lengths, task).plan();
}

std::string validate(std::span<const int64_t> lengths, const LockstepTask& task,
                     const LockstepPlan& plan) {
  if (std::ssize(plan.ranks) != task.num_ranks) {
    return fmt::format("{} ranks, expected {}", plan.ranks.size(), task.num_ranks);
  }
  std::vector<int32_t> seen(lengths.size(), 0);
  std::vector<int64_t> dearest(plan.ranks.front().size(), 0);
  for (size_t r = 0; r < plan.ranks.size(); ++r) {
    if (plan.ranks[r].size() != dearest.size()) {
      return fmt::format("rank {} has {} micro-batches, rank 0 has {}", r, plan.ranks[r].size(),
                         dearest.size());
    }
    for (size_t p = 0; p < dearest.size(); ++p) {
      const auto& batch = plan.ranks[r][p];
      int64_t tokens = 0;
      int64_t cost = 0;
      for (const int32_t i : batch) {
        if (i < 0 || static_cast<size_t>(i) >= lengths.size()) return fmt::format("no item {}", i);
        if (++seen[i] > 1) return fmt::format("item {} is packed twice", i);
        tokens += lengths[i];
        cost += task.cost.of(lengths[i]);
      }
      if (!std::is_sorted(batch.begin(), batch.end())) {
        return fmt::format("items of micro-batch {} of rank {} are not ascending", p, r);
      }
      if (tokens > task.cap_tokens && batch.size() > 1) {
        return fmt::format("micro-batch {} of rank {} has {} tokens, cap {}", p, r, tokens,
                           task.cap_tokens);
      }
      dearest[p] = std::max(dearest[p], cost);
    }
  }
  const auto lost = std::find(seen.begin(), seen.end(), 0);
  if (lost != seen.end()) return fmt::format("item {} is not packed", lost - seen.begin());
  const int64_t lockstep = std::accumulate(dearest.begin(), dearest.end(), int64_t{0});
  if (lockstep != plan.lockstep_cost) {
    return fmt::format("states lockstep cost {}, has {}", plan.lockstep_cost, lockstep);
  }
  return "";
}

}  // namespace keel::balance
