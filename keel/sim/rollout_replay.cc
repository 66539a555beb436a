#include "keel/sim/rollout_replay.h"
#include "keel/sim/numbers.h"

#include <algorithm>
#include <cmath>
#include <deque>

#include "keel/balance/rollout_rebalance.h"
#include "keel/base/error.h"

namespace keel::sim {
namespace {

constexpr int64_t kLeap = 64;        // steps after which cache lengths are looked at again
constexpr int64_t kMinLeap = 4;      // finishes this close are one event
constexpr double kSplitBelow = 0.4;  // of the cores: fewer sequences are cut into parts
constexpr double kMinPart = 512;

struct Sequence {
  int64_t done = 0, length = 0;
};

struct Rank {
  std::deque<Sequence> queue;
  std::vector<Sequence> live;
  double idle_since = -1;

  bool is_done() const { return queue.empty() && live.empty(); }
  double kv(double prompt) const {
    double sum = 0;
    for (const auto& s : live) sum += prompt + to_double(s.done);
    return sum;
  }
};

class Replay {
 public:
  explicit Replay(const ReplayTask& task)
      : t_(task), capacity_(to_double(task.kv_capacity_tokens)) {
    for (const auto& lengths : task.queues) {
      Rank rank;
      for (const int64_t n : lengths) {
        KEEL_REQUIRE(capacity_ <= 0 || task.prompt_tokens + to_double(n) <= capacity_,
                     "[rollout] expected sequences within the cache of {} tokens, got {}; try more "
                     "tp",
                     task.kv_capacity_tokens, n);
        if (n > 0) rank.queue.push_back({0, n});
      }
      ranks_.push_back(std::move(rank));
    }
    for (auto it = task.graph_sizes.rbegin(); it != task.graph_sizes.rend(); ++it) {
      buckets_.push_back(static_cast<int32_t>(*it));
    }
    std::sort(buckets_.begin(), buckets_.end());
  }

  ReplayResult run() {
    int64_t since_check = 0;
    while (admit()) {
      const int64_t leap = leap_steps();
      decode(leap);
      since_check += leap;
      if (t_.rebalance && since_check >= t_.rebalance_every) {
        since_check = 0;
        rebalance();
      }
    }
    double first = r_.seconds;
    for (const auto& rank : ranks_) first = std::min(first, std::max(0.0, rank.idle_since));
    r_.first_idle_share = r_.seconds > 0 ? 1 - first / r_.seconds : 0;
    return std::move(r_);
  }

 private:
  // Fills slots; false when nothing is left.
  bool admit() {
    double most = 0;
    bool any = false;
    for (auto& rank : ranks_) {
      double tokens = 0, kv = rank.kv(t_.prompt_tokens);
      while (!rank.queue.empty() && static_cast<int64_t>(rank.live.size()) < t_.slots) {
        const double need = t_.prompt_tokens + to_double(rank.queue.front().done) + kLeap;
        if (capacity_ > 0 && !rank.live.empty() && kv + need > capacity_) break;
        kv += need;
        tokens += t_.prompt_tokens + to_double(rank.queue.front().done);
        rank.live.push_back(rank.queue.front());
        rank.queue.pop_front();
      }
      most = std::max(most, tokens);
      any = any || !rank.live.empty();
    }
    if (most > 0) {
      const double s = t_.prefill_s(most);
      r_.prefill_s += s;
      r_.seconds += s;
    }
    return any;
  }

  int64_t leap_steps() const {
    int64_t next = kLeap;
    for (const auto& rank : ranks_) {
      for (const auto& s : rank.live) next = std::min(next, s.length - s.done);
    }
    return std::max(next, kMinLeap);
  }

  double padded(int64_t batch) const {
    if (buckets_.empty()) return to_double(batch);
    return balance::rollout_bucket(buckets_, static_cast<int32_t>(batch));
  }

  void decode(int64_t steps) {
    StepLoad load;
    for (auto& rank : ranks_) {
      load.batch = std::max(load.batch, to_double(static_cast<int64_t>(rank.live.size())));
      double kv = 0;
      kv_.clear();
      for (const auto& s : rank.live) {
        kv_.push_back(t_.prompt_tokens + to_double(s.done) + to_double(steps) / 2);
        kv += kv_.back();
      }
      if (t_.split_by_count) kv *= by_count_imbalance(kv_, t_.cores);
      load.kv_tokens = std::max(load.kv_tokens, kv);
    }
    load.batch = padded(static_cast<int64_t>(load.batch));
    int64_t longest = 0;  // a leap over the last finishes takes no more steps than they need
    for (const auto& rank : ranks_) {
      for (const auto& s : rank.live) longest = std::max(longest, s.length - s.done);
    }
    steps = std::min(steps, longest);
    const double seconds = to_double(steps) * t_.step_s(load);
    r_.decode_s += seconds;
    r_.seconds += seconds;
    for (auto& rank : ranks_) advance(rank, steps);
  }

  void advance(Rank& rank, int64_t steps) {
    for (auto& s : rank.live) s.done += steps;
    std::erase_if(rank.live, [](const Sequence& s) { return s.done >= s.length; });
    double kv = rank.kv(t_.prompt_tokens);
    while (capacity_ > 0 && kv > capacity_) {  // the newest goes back and is computed again
      kv -= t_.prompt_tokens + to_double(rank.live.back().done);
      rank.queue.push_front(rank.live.back());
      rank.live.pop_back();
    }
    if (rank.is_done() && rank.idle_since < 0) rank.idle_since = r_.seconds;
    if (!rank.is_done()) rank.idle_since = -1;
  }

  void rebalance() {
    std::vector<balance::RolloutRankState> states;
    for (const auto& rank : ranks_) {
      const double usage = capacity_ > 0 ? rank.kv(t_.prompt_tokens) / capacity_ : 0;
      states.push_back({static_cast<int32_t>(rank.live.size()),
                        static_cast<int32_t>(rank.queue.size()), std::min(1.0, usage)});
    }
    auto buckets = buckets_;
    if (buckets.empty()) {
      for (int32_t b = 4; b < t_.slots; b *= 2) buckets.push_back(b);
      buckets.push_back(static_cast<int32_t>(t_.slots));
    }
    double moved = 0;
    for (const auto& task :
         balance::published_rebalance(states, {buckets, static_cast<int32_t>(t_.slots)})) {
      auto& from = ranks_[static_cast<size_t>(task.from_rank)];
      auto& to = ranks_[static_cast<size_t>(task.to_rank)];
      for (int32_t i = 0; i < task.count; ++i) {
        if (!task.needs_kv && !from.queue.empty()) {
          to.queue.push_back(from.queue.back());
          from.queue.pop_back();
        } else if (!from.live.empty()) {
          moved += t_.prompt_tokens + to_double(from.live.back().done);
          to.live.push_back(from.live.back());
          from.live.pop_back();
        }
      }
      to.idle_since = -1;
    }
    if (moved > 0) {
      const double s = t_.move_s(moved);
      r_.move_s += s;
      r_.seconds += s;
    }
    for (auto& rank : ranks_) {
      if (rank.is_done() && rank.idle_since < 0) rank.idle_since = r_.seconds;
    }
  }

  const ReplayTask& t_;
  double capacity_;
  std::vector<Rank> ranks_;
  std::vector<int32_t> buckets_;
  std::vector<double> kv_;
  ReplayResult r_;
};

}  // namespace

double by_count_imbalance(const std::vector<double>& kv, int64_t cores) {
  if (kv.empty()) return 1;
  const auto count = static_cast<int64_t>(kv.size());
  double total = 0;
  for (const double x : kv) total += x;
  const double mean = total / to_double(cores);
  double slowest = 0;
  if (to_double(count) < kSplitBelow * to_double(cores)) {
    const auto parts = to_double(cores / count);
    for (const double x : kv) {
      slowest = std::max(slowest, x / std::clamp(x / kMinPart, 1.0, parts));
    }
    return std::max(1.0, slowest / mean);
  }
  for (int64_t core = 0; core < cores; ++core) {
    double sum = 0;
    for (int64_t i = core * count / cores; i < (core + 1) * count / cores; ++i) {
      sum += kv[static_cast<size_t>(i)];
    }
    slowest = std::max(slowest, sum);
  }
  return std::max(1.0, slowest / mean);
}

ReplayResult replay_rollout(const ReplayTask& task) { return Replay(task).run(); }

}  // namespace keel::sim
