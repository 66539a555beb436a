#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <set>

#include "keel/balance/published/context_groups.h"
#include "keel/base/error.h"

namespace keel::balance::published {
namespace {

constexpr double kDelta = 0.05;  // balance that ends a round

struct Rank {
  std::vector<int32_t> sequences;
  double time = 0;
  int32_t group = -1;
};

struct Group {
  int32_t size = 0;
  std::vector<int32_t> members;  // ascending
};

// One round: fills ranks from a list of sequences and returns what is left of the list.
class Round {
 public:
  Round(std::span<const int64_t> lengths, int32_t num_ranks, int64_t max_tokens)
      : lengths_(lengths), max_tokens_(max_tokens), ranks_(num_ranks) {}

  std::vector<int32_t> run(const std::vector<int32_t>& list) {
    make_buckets(list);
    place_all();
    std::vector<int32_t> left;
    for (const auto& bucket : buckets_) left.insert(left.end(), bucket.begin(), bucket.end());
    trim(left);
    while (std::any_of(ranks_.begin(), ranks_.end(),
                       [](const Rank& r) { return r.sequences.empty(); })) {
      double_a_group();
    }
    return left;
  }

  std::vector<std::vector<int32_t>> sequences() const {
    std::vector<std::vector<int32_t>> out;
    for (const auto& rank : ranks_) out.push_back(rank.sequences);
    return out;
  }

 private:
  int32_t need(int32_t i) const {
    const double ratio = static_cast<double>(lengths_[i]) / static_cast<double>(max_tokens_);
    return ratio <= 1 ? 1 : 1 << static_cast<int>(std::ceil(std::log2(ratio)));
  }
  double work(int32_t i, int32_t group) const {
    return static_cast<double>(lengths_[i] * lengths_[i]) / group;
  }
  double work(int32_t i) const { return work(i, need(i)); }

  // As many buckets of about equal work as there are different needs.
  void make_buckets(const std::vector<int32_t>& list) {
    std::set<int32_t> needs;
    double total = 0;
    for (const int32_t i : list) {
      needs.insert(need(i));
      total += work(i);
    }
    const double target = total / static_cast<double>(needs.size());
    auto left_over = std::ssize(needs);
    std::deque<int32_t> current;
    double sum = 0;
    for (int64_t at = 0; at < std::ssize(list); ++at) {
      const int32_t i = list[at];
      const bool keeps_few = std::ssize(list) - at <= left_over - std::ssize(buckets_);
      if (!current.empty() && (sum + work(i) > target * 1.1 || keeps_few)) {
        buckets_.push_back(std::move(current));
        current.clear();
        sum = 0;
        --left_over;
      }
      current.push_back(i);
      sum += work(i);
    }
    if (!current.empty()) buckets_.push_back(std::move(current));
  }

  std::vector<int32_t> free_ranks() const {
    std::vector<int32_t> free;
    for (int32_t r = 0; r < std::ssize(ranks_); ++r) {
      if (ranks_[r].group < 0) free.push_back(r);
    }
    return free;
  }

  void place_all() {
    int32_t first_need = -1;
    bool may_end = false;
    while (!buckets_.empty()) {
      const auto bucket = std::find_if(buckets_.begin(), buckets_.end(), [&](const auto& b) {
        if (b.empty()) return false;
        const int32_t n = need(b.front());
        return std::ssize(free_ranks()) >= n ||
               std::any_of(groups_.begin(), groups_.end(),
                           [&](const Group& g) { return g.size == n; });
      });
      if (bucket == buckets_.end()) return;
      const int32_t i = bucket->front();
      bucket->pop_front();
      if (first_need < 0) first_need = need(i);
      const double cost = work(i);
      for (const int32_t r : groups_[group_for(i)].members) {
        ranks_[r].sequences.push_back(i);
        ranks_[r].time += cost;
      }
      while (!buckets_.empty() && buckets_.front().empty()) buckets_.erase(buckets_.begin());
      may_end = may_end || need(i) < first_need;
      const auto [low, high] = span_of_times();
      if (may_end && !buckets_.empty() && high - low <= kDelta * high) return;
    }
  }

  // The least loaded group of the right size, or a new one of free ranks if that is less loaded.
  size_t group_for(int32_t i) {
    const int32_t n = need(i);
    int64_t best = -1;
    double best_load = 0;
    for (int64_t g = 0; g < std::ssize(groups_); ++g) {
      if (groups_[g].size != n) continue;
      double load = 0;
      for (const int32_t r : groups_[g].members) load = std::max(load, ranks_[r].time);
      if (best < 0 || load < best_load) {
        best = g;
        best_load = load;
      }
    }
    auto free = free_ranks();
    if (std::ssize(free) < n) return static_cast<size_t>(best);
    if (best >= 0 && best_load <= 0) return static_cast<size_t>(best);  // free ranks have time 0
    free.resize(n);
    for (const int32_t r : free) ranks_[r].group = static_cast<int32_t>(groups_.size());
    groups_.push_back({n, std::move(free)});
    return groups_.size() - 1;
  }

  std::pair<double, double> span_of_times() const {
    const auto [low, high] = std::minmax_element(
        ranks_.begin(), ranks_.end(), [](const Rank& a, const Rank& b) { return a.time < b.time; });
    return {low->time, high->time};
  }

  // Takes the last sequence from the most loaded group while that narrows the span of times.
  void trim(std::vector<int32_t>& left) {
    while (true) {
      const auto [low, high] = span_of_times();
      if (high - low <= kDelta * high || low == 0) return;
      const auto top = std::find_if(ranks_.begin(), ranks_.end(),
                                    [high = high](const Rank& r) { return r.time == high; });
      if (top->sequences.size() <= 1) return;
      const int32_t i = top->sequences.back();
      const double cost = work(i);
      const auto& members = groups_[top->group].members;
      for (const int32_t r : members) ranks_[r].time -= cost;
      const auto [new_low, new_high] = span_of_times();
      if (new_high - new_low >= high - low) {
        for (const int32_t r : members) ranks_[r].time += cost;
        return;
      }
      for (const int32_t r : members) ranks_[r].sequences.pop_back();
      left.push_back(i);
    }
  }

  // The first of the smallest groups takes as many ranks again; the ranks behind it up to the first
  // empty one move back.
  void double_a_group() {
    KEEL_REQUIRE(!groups_.empty(),
                 "[balance.megatron] expected sequences of at most {} tokens on {} ranks; try "
                 "more ranks",
                 max_tokens_ * std::ssize(ranks_), ranks_.size());
    const auto group =
        std::min_element(groups_.begin(), groups_.end(),
                         [](const Group& a, const Group& b) { return a.size < b.size; });
    const auto num_ranks = static_cast<int32_t>(ranks_.size());
    const int32_t new_size = std::min(group->size * 2, num_ranks);
    const int32_t more = new_size - group->size;
    const int32_t begin = group->members.front();
    const int32_t end = group->members.back();
    const auto empty =
        static_cast<int32_t>(std::find_if(ranks_.begin(), ranks_.end(),
                                          [](const Rank& r) { return r.sequences.empty(); }) -
                             ranks_.begin());
    KEEL_REQUIRE(std::max(empty, end + 1) + more <= num_ranks,
                 "[balance.megatron] expected {} more empty ranks for a group, got fewer", more);
    std::vector<Rank> moved(ranks_.size());
    for (int32_t r = 0; r < begin; ++r) moved[r] = ranks_[r];
    for (int32_t r = begin; r <= end + more; ++r) {
      moved[r].sequences = ranks_[end].sequences;
      moved[r].time = work(ranks_[end].sequences.front(), new_size);
    }
    for (int32_t r = end + 1; r < empty; ++r) moved[r + more] = ranks_[r];
    ranks_ = std::move(moved);
    group->size = new_size;
    group->members.resize(end + more + 1 - begin);
    std::iota(group->members.begin(), group->members.end(), begin);
    for (auto later = group + 1; later != groups_.end(); ++later) {
      for (int32_t& r : later->members) r += more;
    }
  }

  std::span<const int64_t> lengths_;
  int64_t max_tokens_;
  std::vector<Rank> ranks_;
  std::vector<Group> groups_;
  std::vector<std::deque<int32_t>> buckets_;
};

}  // namespace

std::vector<std::vector<std::vector<int32_t>>> megatron_balanced_cp(
    std::span<const int64_t> lengths, int32_t num_ranks, int64_t max_tokens_per_rank) {
  KEEL_REQUIRE(num_ranks >= 1 && max_tokens_per_rank >= 1,
               "[balance.megatron] expected num_ranks and max_tokens_per_rank >= 1, got {} and {}",
               num_ranks, max_tokens_per_rank);
  std::vector<int32_t> list(lengths.size());
  std::iota(list.begin(), list.end(), 0);
  for (const int32_t i : list) {
    KEEL_REQUIRE(lengths[i] >= 1, "[balance.megatron] expected lengths >= 1, got {} at item {}",
                 lengths[i], i);
  }
  std::stable_sort(list.begin(), list.end(),
                   [&](int32_t x, int32_t y) { return lengths[x] > lengths[y]; });
  std::vector<std::vector<std::vector<int32_t>>> rounds;
  while (!list.empty()) {
    Round round(lengths, num_ranks, max_tokens_per_rank);
    list = round.run(list);
    rounds.push_back(round.sequences());
  }
  return rounds;
}

}  // namespace keel::balance::published
