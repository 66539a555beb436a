// Time and quality of the planners on long-tailed inputs, beside the published algorithms (our
// exact ports in C++; the originals are Python). Quality is the largest load over a proven lower
// bound.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <set>

#include "keel/balance/attention_partition.h"
#include "keel/balance/context_parallel.h"
#include "keel/balance/eplb.h"
#include "keel/balance/expert_placement.h"
#include "keel/balance/lockstep_batches.h"
#include "keel/balance/published/context_groups.h"
#include "keel/balance/published/karmarkar_karp.h"
#include "keel/balance/sequence_balance.h"
#include "keel/base/rng.h"

namespace keel::balance {
namespace {

using Lengths = std::vector<int64_t>;
constexpr SequenceCost kCost{28011, 1};

// Lognormal with mean 8000 and coefficient of variation 1, up to 32768.
Lengths long_tail(int32_t n, uint64_t seed) {
  Lengths out;
  const double sigma = std::sqrt(std::log(2.0));
  for (int32_t i = 0; i < n; ++i) {
    const double radius = std::sqrt(-2 * std::log(uniform(seed, i, 0)));
    const double z = radius * std::cos(6.283185307179586 * uniform(seed, i, 1));
    const double x = std::exp(std::log(8000.0) - sigma * sigma / 2 + sigma * z);
    out.push_back(std::clamp<int64_t>(std::llround(x), 16, 32768));
  }
  return out;
}

// Shortest of three runs in microseconds; the last result.
template <class F>
auto timed(const F& run, double& us) {
  using Clock = std::chrono::steady_clock;
  us = 1e30;
  for (int k = 0;; ++k) {
    const auto before = Clock::now();
    auto out = run();
    us = std::min(us, std::chrono::duration<double, std::micro>(Clock::now() - before).count());
    if (k == 2) return out;
  }
}

void print(const std::string& what, double us, double quality, const char* peer, double peer_us,
           double peer_quality) {
  fmt::print("{:<40} {:>9.0f} us  {:.4f}   {:<22} {:>9.0f} us  {:.4f}\n", what, us, quality, peer,
             peer_us, peer_quality);
}

double largest_sum(const Lengths& weights, const std::vector<std::vector<int32_t>>& parts) {
  int64_t largest = 0;
  for (const auto& part : parts) {
    int64_t sum = 0;
    for (const int32_t i : part) sum += weights[i];
    largest = std::max(largest, sum);
  }
  return static_cast<double>(largest);
}

void bench_sequences(int32_t n, int32_t ranks, CountMode mode) {
  const auto lengths = long_tail(n, 1);
  const auto costs = sequence_costs(lengths, kCost, "bench");
  const bool equal = mode == CountMode::kEqual;
  double us = 0;
  const auto plan =
      timed([&] { return balance_sequences(lengths, ranks, kCost, {.mode = mode}); }, us);
  double peer_us = 0;
  double peer = 0;
  if (n <= 8192) {
    const auto parts =
        timed([&] { return published::verl_balanced_partitions(costs, ranks, equal); }, peer_us);
    peer = largest_sum(costs, parts) / static_cast<double>(plan.lower_bound);
  }
  print(fmt::format("sequences {} on {}, {}", n, ranks, equal ? "equal" : "free"), us,
        static_cast<double>(plan.max_cost()) / static_cast<double>(plan.lower_bound), "verl KK",
        peer_us, peer);
}

double lockstep_over_mean(const Lengths& lengths, const std::vector<published::Parts>& ranks) {
  double total = 0;
  std::vector<std::vector<int64_t>> costs(ranks.size());
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (const auto& batch : ranks[r]) {
      costs[r].push_back(0);
      for (const int32_t i : batch) costs[r].back() += kCost.of(lengths[i]);
      total += static_cast<double>(costs[r].back());
    }
    std::sort(costs[r].begin(), costs[r].end());
  }
  double lockstep = 0;
  for (size_t p = 0; p < costs[0].size(); ++p) {
    int64_t dearest = 0;
    for (const auto& rank : costs) dearest = std::max(dearest, rank[p]);
    lockstep += static_cast<double>(dearest);
  }
  return lockstep * static_cast<double>(ranks.size()) / total;
}

void bench_lockstep(int32_t n, int32_t ranks) {
  const auto lengths = long_tail(n, 2);
  const LockstepTask task{.cap_tokens = 34816, .num_ranks = ranks, .cost = kCost};
  double us = 0;
  const auto plan = timed([&] { return plan_lockstep_batches(lengths, task); }, us);
  double peer_us = 0;
  const auto peer =
      timed([&] { return published::slime_schedule(lengths, 34816, ranks, true, 28011); }, peer_us);
  print(fmt::format("micro-batches {} on {} ({}, slime {})", n, ranks, plan.num_positions(),
                    peer[0].size()),
        us, lockstep_over_mean(lengths, plan.ranks), "slime first fit KK", peer_us,
        lockstep_over_mean(lengths, peer));
}

void bench_context(int32_t n, int32_t ranks) {
  const auto lengths = long_tail(n, 3);
  HdpTask task{.num_ranks = ranks, .capacity_tokens = 8704, .cost = {}};
  task.cost.compute = kCost;
  task.cost.ring_latency = 2e6;
  task.cost.ring_per_token = 1000;
  double us = 0;
  const auto plan = timed([&] { return plan_context_groups(lengths, task); }, us);
  double peer_us = 0;
  const auto rounds =
      timed([&] { return published::megatron_balanced_cp(lengths, ranks, 8704); }, peer_us);
  std::vector<HdpStep> steps;
  for (const auto& round : rounds) {
    std::set<int32_t> seen;
    for (const auto& rank : round) {
      for (const int32_t i : rank) {
        if (!seen.insert(i).second) continue;
        HdpStep step{{}, {i}};
        for (int32_t r = 0; r < ranks; ++r) {
          if (std::count(round[r].begin(), round[r].end(), i) > 0) step.ranks.push_back(r);
        }
        steps.push_back(std::move(step));
      }
    }
  }
  print(fmt::format("context groups {} on {}", n, ranks), us, plan.makespan / plan.lower_bound,
        "Megatron balanced CP", peer_us, simulate_steps(lengths, task, steps) / plan.lower_bound);
}

void bench_experts(int32_t experts, int32_t replicas, int32_t gpus) {
  std::vector<int64_t> counts;
  for (int32_t e = 0; e < experts; ++e) {
    counts.push_back(static_cast<int64_t>(100 * std::pow(uniform(4, e), -0.7)));
  }
  const std::vector<double> loads(counts.begin(), counts.end());
  const ExpertLayout layout{experts, replicas, gpus};
  double us = 0;
  const auto plan = timed([&] { return place_experts(loads, layout); }, us);
  double peer_us = 0;
  const auto peer = timed([&] { return eplb(counts, {layout, 1, 1}); }, peer_us);
  const double bound = imbalance_bound(loads, layout);
  print(fmt::format("experts {} as {} on {}", experts, replicas, gpus), us,
        imbalance(loads, layout, plan) / bound, "EPLB global", peer_us,
        imbalance(loads, layout, peer) / bound);
}

void bench_attention(int32_t rows, int32_t cores, bool prefill) {
  std::vector<AttentionRequest> requests;
  for (const int64_t s : long_tail(rows, 5)) requests.push_back({prefill ? s / 8 : 1, s});
  const AttentionShape shape{.heads_per_kv = 16, .num_kv_heads = 1, .row_tile = 16, .kv_tile = 512};
  double us = 0;
  const auto plan = timed([&] { return plan_attention(requests, shape, cores); }, us);
  double peer_us = 0;
  const auto peer = timed([&] { return split_contiguous(requests, shape, cores); }, peer_us);
  const auto bound = static_cast<double>(plan.lower_bound);
  print(fmt::format("attention {} {} rows on {}", rows, prefill ? "prefill" : "decode", cores), us,
        static_cast<double>(plan.max_load()) / bound, "FIA split", peer_us,
        static_cast<double>(*std::max_element(peer.loads.begin(), peer.loads.end())) / bound);
}

void bench_all() {
  for (const auto mode : {CountMode::kEqual, CountMode::kFree}) {
    bench_sequences(1024, 64, mode);
    bench_sequences(8192, 128, mode);
    bench_sequences(100000, 64, mode);
  }
  bench_lockstep(1024, 16);
  bench_lockstep(8192, 32);
  bench_context(128, 16);
  bench_context(512, 64);
  bench_context(1024, 64);
  bench_experts(128, 160, 32);
  bench_experts(256, 288, 32);
  bench_experts(512, 544, 32);
  bench_attention(32, 24, false);
  bench_attention(256, 24, false);
  bench_attention(64, 132, true);
}

}  // namespace
}  // namespace keel::balance

int main() {
  keel::balance::bench_all();
  return 0;
}
