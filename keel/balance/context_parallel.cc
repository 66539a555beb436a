#include "keel/balance/context_parallel.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "keel/base/error.h"
#include "keel/base/rng.h"

namespace keel::balance {
namespace {

constexpr uint64_t kHdpSeed = 0x4d9;
constexpr size_t kStride = 8;  // placed sequences between two saved states

struct Job {
  int32_t sequence = 0;
  int32_t group = 1;
};

// Sequence times for every group size, computed once where asked for.
class Times {
 public:
  Times(std::span<const int64_t> lengths, const HdpTask& task)
      : lengths_(lengths),
        task_(task),
        time_(lengths.size() * task.num_ranks, -1),
        need_(lengths.size()) {
    for (size_t i = 0; i < lengths.size(); ++i) {
      need_[i] = static_cast<int32_t>(
          std::max<int64_t>(1, (lengths[i] + task.capacity_tokens - 1) / task.capacity_tokens));
    }
  }

  int32_t need(int32_t i) const { return need_[i]; }

  double operator()(int32_t i, int32_t group) {
    double& t = time_[static_cast<size_t>(i) * task_.num_ranks + group - 1];
    if (t < 0) t = choose_context(lengths_[i], group, task_.cost).time;
    return t;
  }

  // The group with the smallest time, smallest first.
  int32_t fastest(int32_t i) {
    int32_t best = need_[i];
    for (int32_t g = best + 1; g <= task_.num_ranks; ++g) {
      if ((*this)(i, g) < (*this)(i, best)) best = g;
    }
    return best;
  }

 private:
  std::span<const int64_t> lengths_;
  const HdpTask& task_;
  std::vector<double> time_;
  std::vector<int32_t> need_;
};

// When ranks become free, ascending; which rank is which does not matter for the makespan.
class FreeTimes {
 public:
  explicit FreeTimes(int32_t num_ranks) : at_(num_ranks, 0) {}

  // The `group` ranks that are free earliest run a job of this time together.
  double place(int32_t group, double time) {
    const double end = at_[group - 1] + time;
    const auto first = at_.begin() + group;
    const auto last = std::lower_bound(first, at_.end(), end);
    std::copy(first, last, at_.begin());
    std::fill(last - group, last, end);
    return end;
  }
  double last() const { return at_.back(); }

 private:
  std::vector<double> at_;
};

class HdpPlanner {
 public:
  HdpPlanner(std::span<const int64_t> lengths, const HdpTask& task)
      : lengths_(lengths), task_(task), time_(lengths, task), ranks_(task.num_ranks) {}

  HdpPlan plan() {
    HdpPlan out;
    out.lower_bound = lower_bound();
    target_ = out.lower_bound * (1 + task_.tolerance);
    try_targets(out.lower_bound);
    if (best_time_ > target_) climb();
    out.steps = assign_ranks();
    out.makespan = simulate_steps(lengths_, task_, out.steps);
    std::set<std::vector<int32_t>> groups;
    for (const auto& step : out.steps) {
      if (step.ranks.size() > 1) groups.insert(step.ranks);
    }
    out.num_groups = static_cast<int32_t>(groups.size());
    return out;
  }

 private:
  // All work at the smallest groups spread evenly, or the slowest sequence at its best group.
  double lower_bound() {
    double area = 0;
    double single = 0;
    fastest_.resize(lengths_.size());
    for (int32_t i = 0; i < std::ssize(lengths_); ++i) {
      double least = std::numeric_limits<double>::max();
      for (int32_t g = time_.need(i); g <= ranks_; ++g) {
        least = std::min(least, g * time_(i, g));
        if (task_.cost.max_ulysses <= 1) break;  // work grows with the ring
      }
      area += least;
      fastest_[i] = time_.fastest(i);
      single = std::max(single, time_(i, fastest_[i]));
    }
    return std::max(area / ranks_, single);
  }

  void try_targets(double bound) {
    for (const double factor : {1.0, 1.01, 1.025, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.6, 2.0, 3.0}) {
      for (const double part : {1.0, 0.5, 0.33}) {
        std::vector<Job> jobs;
        for (int32_t i = 0; i < std::ssize(lengths_); ++i) {
          int32_t g = time_.need(i);
          while (g < fastest_[i] && time_(i, g) > bound * factor * part) ++g;
          jobs.push_back({i, g});
        }
        for (const bool by_group : {true, false}) {
          std::stable_sort(jobs.begin(), jobs.end(), [&](const Job& x, const Job& y) {
            const int32_t gx = x.group > 1 ? x.group : 0;
            const int32_t gy = y.group > 1 ? y.group : 0;
            const double tx = time_(x.sequence, x.group);
            const double ty = time_(y.sequence, y.group);
            if (by_group && gx != gy) return gx > gy;
            return tx != ty ? tx > ty : x.group > y.group;
          });
          const double makespan = run(jobs);
          if (best_.empty() || makespan < best_time_) {
            best_ = jobs;
            best_time_ = makespan;
          }
          if (best_time_ <= target_ || spent_ > task_.effort) return;
        }
      }
    }
  }

  double run(const std::vector<Job>& jobs) {
    FreeTimes free(ranks_);
    for (const Job& job : jobs) free.place(job.group, time_(job.sequence, job.group));
    spent_ += std::ssize(jobs);
    return free.last();
  }

  // Random changes of group sizes and order; one that is not worse is kept. Late jobs, which level
  // the end, are changed more often; states saved on the way spare the jobs before them.
  void climb() {
    const auto n = best_.size();
    if (n == 0) return;
    std::vector<FreeTimes> saved(n / kStride + 1, FreeTimes(ranks_));
    save_states(best_, 0, saved);
    std::vector<Job> jobs = best_;
    for (uint64_t round = 0; spent_ < task_.effort && best_time_ > target_; ++round) {
      const size_t first = change(jobs, round);
      const size_t from = first / kStride;
      FreeTimes free = saved[from];
      bool fails = false;
      for (size_t k = from * kStride; k < n && !fails; ++k, ++spent_) {
        fails = free.place(jobs[k].group, time_(jobs[k].sequence, jobs[k].group)) > best_time_;
      }
      spent_ += 2;
      if (fails) {
        std::copy(best_.begin() + static_cast<int64_t>(first), best_.end(),
                  jobs.begin() + static_cast<int64_t>(first));
        continue;
      }
      best_time_ = free.last();
      std::copy(jobs.begin() + static_cast<int64_t>(first), jobs.end(),
                best_.begin() + static_cast<int64_t>(first));
      save_states(best_, from, saved);
    }
  }

  void save_states(const std::vector<Job>& jobs, size_t from, std::vector<FreeTimes>& saved) {
    FreeTimes free = saved[from];
    for (size_t k = from * kStride; k < jobs.size(); ++k) {
      if (k % kStride == 0) saved[k / kStride] = free;
      free.place(jobs[k].group, time_(jobs[k].sequence, jobs[k].group));
    }
  }

  // Changes up to three jobs; returns the first position that differs.
  size_t change(std::vector<Job>& jobs, uint64_t round) {
    uint64_t draw = 0;
    const auto random = [&](uint64_t bound) {
      return static_cast<size_t>(uniform_int(bound, kHdpSeed, round, draw++));
    };
    const auto late = [&] {
      const double u = uniform(kHdpSeed + 1, round, draw++);
      const double skew = round % 2 == 0 ? u : u * u * u;
      return jobs.size() - 1 - static_cast<size_t>(skew * static_cast<double>(jobs.size()));
    };
    constexpr int32_t kSteps[] = {-4, -2, -1, 1, 2, 4};
    size_t first = jobs.size() - 1;
    for (size_t times = 1 + random(3); times > 0; --times) {
      const size_t k = late();
      const size_t kind = random(10);
      if (kind < 5) {
        Job& job = jobs[k];
        job.group = std::clamp(job.group + kSteps[random(6)], time_.need(job.sequence),
                               fastest_[job.sequence]);
        first = std::min(first, k);
      } else {
        const size_t j = late();
        const auto low = static_cast<int64_t>(std::min(j, k));
        const auto high = static_cast<int64_t>(std::max(j, k));
        if (kind >= 8) {
          std::swap(jobs[j], jobs[k]);
        } else if (j < k) {
          std::rotate(jobs.begin() + low, jobs.begin() + high, jobs.begin() + high + 1);
        } else {
          std::rotate(jobs.begin() + low, jobs.begin() + low + 1, jobs.begin() + high + 1);
        }
        first = std::min(first, static_cast<size_t>(low));
      }
    }
    return first;
  }

  // Real ranks for the best order: those free earliest, lower ones first. Neighbouring jobs of the
  // same ranks become one step while they fit into memory together.
  std::vector<HdpStep> assign_ranks() {
    std::vector<HdpStep> steps;
    std::vector<std::pair<double, int32_t>> free(ranks_);
    for (int32_t r = 0; r < ranks_; ++r) free[r] = {0, r};
    std::vector<int64_t> last_step(ranks_, -1);
    std::vector<int64_t> tokens;
    for (const Job& job : best_) {
      std::sort(free.begin(), free.end());
      const double end = free[job.group - 1].first + time_(job.sequence, job.group);
      HdpStep step;
      for (int32_t k = 0; k < job.group; ++k) {
        step.ranks.push_back(free[k].second);
        free[k].first = end;
      }
      std::sort(step.ranks.begin(), step.ranks.end());
      step.sequences = {job.sequence};
      step.ulysses = choose_context(lengths_[job.sequence], job.group, task_.cost).ulysses;
      const int64_t before = last_step[step.ranks.front()];
      const int64_t length = lengths_[job.sequence];
      const bool joins = before >= 0 && steps[before].ranks == step.ranks &&
                         steps[before].ulysses == step.ulysses &&
                         std::all_of(step.ranks.begin(), step.ranks.end(),
                                     [&](int32_t r) { return last_step[r] == before; }) &&
                         tokens[before] + length <= task_.capacity_tokens * job.group;
      if (joins) {
        steps[before].sequences.push_back(job.sequence);
        tokens[before] += length;
        continue;
      }
      for (const int32_t r : step.ranks) last_step[r] = std::ssize(steps);
      steps.push_back(std::move(step));
      tokens.push_back(length);
    }
    return steps;
  }

  std::span<const int64_t> lengths_;
  const HdpTask& task_;
  Times time_;
  int32_t ranks_;
  std::vector<int32_t> fastest_;
  std::vector<Job> best_;
  double best_time_ = 0;
  double target_ = 0;
  int64_t spent_ = 0;
};

void check(std::span<const int64_t> lengths, const HdpTask& task) {
  const auto& c = task.cost;
  KEEL_REQUIRE(task.num_ranks >= 1 && task.capacity_tokens >= 1,
               "[balance.hdp] expected num_ranks and capacity_tokens >= 1, got {} and {}",
               task.num_ranks, task.capacity_tokens);
  KEEL_REQUIRE(c.ring_latency >= 0 && c.ring_per_token >= 0 && c.a2a_latency >= 0 &&
                   c.a2a_per_token >= 0 && c.max_ulysses >= 1,
               "[balance.hdp] expected communication costs >= 0 and max_ulysses >= 1, got ring {} "
               "and {}, all-to-all {} and {}, max_ulysses {}",
               c.ring_latency, c.ring_per_token, c.a2a_latency, c.a2a_per_token, c.max_ulysses);
  KEEL_REQUIRE(task.tolerance >= 0 && task.effort >= 0,
               "[balance.hdp] expected tolerance and effort >= 0, got {} and {}", task.tolerance,
               task.effort);
  sequence_costs(lengths, c.compute, "balance.hdp");
  for (size_t i = 0; i < lengths.size(); ++i) {
    KEEL_REQUIRE((lengths[i] + task.num_ranks - 1) / task.num_ranks <= task.capacity_tokens,
                 "[balance.hdp] expected sequences of at most {} tokens ({} on each of {} ranks), "
                 "got {} at item {}; try a larger capacity or more ranks",
                 task.capacity_tokens * task.num_ranks, task.capacity_tokens, task.num_ranks,
                 lengths[i], i);
  }
}

}  // namespace

ContextChoice choose_context(int64_t tokens, int32_t group, const ContextCost& cost) {
  const auto s = static_cast<double>(tokens);
  const double share = s / group;
  const double compute = static_cast<double>(cost.compute.of(tokens)) / group;
  ContextChoice best{std::numeric_limits<double>::max(), 1};
  for (int32_t u = 1; u <= std::min(group, cost.max_ulysses); ++u) {
    if (group % u != 0 || cost.max_ulysses % u != 0) continue;
    double time = compute + (group / u - 1) * (cost.ring_latency + cost.ring_per_token * share);
    if (u > 1) time += cost.a2a_latency + cost.a2a_per_token * share * (u - 1) / u;
    if (time < best.time) best = {time, u};
  }
  return best;
}

HdpPlan plan_context_groups(std::span<const int64_t> lengths, const HdpTask& task) {
  check(lengths, task);
  return HdpPlanner(lengths, task).plan();
}

double simulate_steps(std::span<const int64_t> lengths, const HdpTask& task,
                      std::span<const HdpStep> steps) {
  std::vector<double> free(task.num_ranks, 0);
  for (const auto& step : steps) {
    double end = 0;
    for (const int32_t r : step.ranks) end = std::max(end, free[r]);
    const auto group = static_cast<int32_t>(step.ranks.size());
    for (const int32_t i : step.sequences) end += choose_context(lengths[i], group, task.cost).time;
    for (const int32_t r : step.ranks) free[r] = end;
  }
  return free.empty() ? 0 : *std::max_element(free.begin(), free.end());
}

std::string validate(std::span<const int64_t> lengths, const HdpTask& task, const HdpPlan& plan) {
  std::vector<int32_t> seen(lengths.size(), 0);
  for (size_t k = 0; k < plan.steps.size(); ++k) {
    const auto& step = plan.steps[k];
    if (step.ranks.empty()) return fmt::format("step {} has no ranks", k);
    for (size_t r = 0; r < step.ranks.size(); ++r) {
      if (step.ranks[r] < 0 || step.ranks[r] >= task.num_ranks) {
        return fmt::format("step {}: no rank {}", k, step.ranks[r]);
      }
      if (r > 0 && step.ranks[r] <= step.ranks[r - 1]) {
        return fmt::format("ranks of step {} are not ascending", k);
      }
    }
    if (step.ulysses < 1 || std::ssize(step.ranks) % step.ulysses != 0) {
      return fmt::format("step {}: Ulysses degree {} does not divide {} ranks", k, step.ulysses,
                         step.ranks.size());
    }
    int64_t tokens = 0;
    for (const int32_t i : step.sequences) {
      if (i < 0 || static_cast<size_t>(i) >= lengths.size()) return fmt::format("no item {}", i);
      if (++seen[i] > 1) return fmt::format("item {} runs twice", i);
      tokens += lengths[i];
    }
    if (tokens > task.capacity_tokens * std::ssize(step.ranks)) {
      return fmt::format("step {} holds {} tokens on {} ranks, capacity {} each", k, tokens,
                         step.ranks.size(), task.capacity_tokens);
    }
  }
  const auto lost = std::find(seen.begin(), seen.end(), 0);
  if (lost != seen.end()) return fmt::format("item {} does not run", lost - seen.begin());
  const double makespan = simulate_steps(lengths, task, plan.steps);
  if (std::abs(makespan - plan.makespan) > 1e-9 * makespan) {
    return fmt::format("states makespan {}, has {}", plan.makespan, makespan);
  }
  return "";
}

}  // namespace keel::balance
