#include "keel/balance/eplb.h"

#include <algorithm>
#include <numeric>

#include "keel/base/error.h"

namespace keel::balance {
namespace {

// [pack] items in the order they were given to it: heaviest first to the lightest pack with room.
std::vector<std::vector<int32_t>> pack_evenly(std::span<const float> weights, int32_t num_packs) {
  const size_t room = weights.size() / num_packs;
  std::vector<std::vector<int32_t>> packs(num_packs);
  std::vector<int32_t> order(weights.size());
  std::iota(order.begin(), order.end(), 0);
  if (room == 1) {
    for (const int32_t i : order) packs[i] = {i};
    return packs;
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t x, int32_t y) { return weights[x] > weights[y]; });
  std::vector<float> sums(num_packs, 0);
  for (const int32_t item : order) {
    int32_t best = -1;
    for (int32_t p = 0; p < num_packs; ++p) {
      if (packs[p].size() < room && (best < 0 || sums[p] < sums[best])) best = p;
    }
    packs[best].push_back(item);
    sums[best] += weights[item];
  }
  return packs;
}

struct Replicas {
  std::vector<int32_t> expert_of;
  std::vector<int32_t> count;
};

// One replica each, then one more to the expert with the largest share until all are given.
Replicas replicate(std::span<const float> weights, int32_t num_replicas) {
  Replicas r;
  r.expert_of.resize(weights.size());
  std::iota(r.expert_of.begin(), r.expert_of.end(), 0);
  r.count.assign(weights.size(), 1);
  while (std::ssize(r.expert_of) < num_replicas) {
    int32_t best = 0;
    for (int32_t e = 1; e < std::ssize(weights); ++e) {
      if (weights[e] / static_cast<float>(r.count[e]) >
          weights[best] / static_cast<float>(r.count[best])) {
        best = e;
      }
    }
    r.expert_of.push_back(best);
    ++r.count[best];
  }
  return r;
}

void check(std::span<const int64_t> loads, const EplbTask& task) {
  const auto& l = task.layout;
  KEEL_REQUIRE(l.num_experts >= 1 && std::ssize(loads) == l.num_experts,
               "[balance.eplb] expected loads of {} experts, got {}", l.num_experts, loads.size());
  KEEL_REQUIRE(
      l.num_gpus >= 1 && l.num_replicas >= l.num_experts && l.num_replicas % l.num_gpus == 0,
      "[balance.eplb] expected replicas >= {} experts in equal parts on {} GPUs, got {}",
      l.num_experts, l.num_gpus, l.num_replicas);
  KEEL_REQUIRE(task.num_nodes >= 1 && task.num_groups >= 1,
               "[balance.eplb] expected num_nodes and num_groups >= 1, got {} and {}",
               task.num_nodes, task.num_groups);
  if (task.num_groups % task.num_nodes == 0) {
    KEEL_REQUIRE(l.num_experts % task.num_groups == 0 && l.num_gpus % task.num_nodes == 0,
                 "[balance.eplb] expected {} experts in equal groups ({}) and {} GPUs in equal "
                 "nodes ({}); try num_groups = num_nodes = 1",
                 l.num_experts, task.num_groups, l.num_gpus, task.num_nodes);
    KEEL_REQUIRE(l.num_replicas % task.num_nodes == 0,
                 "[balance.eplb] expected replicas in equal parts on {} nodes, got {}",
                 task.num_nodes, l.num_replicas);
  }
  for (size_t e = 0; e < loads.size(); ++e) {
    KEEL_REQUIRE(loads[e] >= 0, "[balance.eplb] expected loads >= 0, got {} at expert {}", loads[e],
                 e);
  }
}

}  // namespace

ExpertPlacement eplb(std::span<const int64_t> loads, const EplbTask& task) {
  check(loads, task);
  const bool hierarchical = task.num_groups % task.num_nodes == 0;
  const int32_t num_groups = hierarchical ? task.num_groups : 1;
  const int32_t num_nodes = hierarchical ? task.num_nodes : 1;
  const int32_t group_size = task.layout.num_experts / num_groups;
  std::vector<float> group_loads(num_groups, 0);
  for (size_t e = 0; e < loads.size(); ++e) {
    group_loads[e / group_size] += static_cast<float>(loads[e]);
  }
  ExpertPlacement out;
  out.count.assign(loads.size(), 0);
  for (const auto& groups : pack_evenly(group_loads, num_nodes)) {
    std::vector<int32_t> experts;
    std::vector<float> weights;
    for (const int32_t g : groups) {
      for (int32_t e = g * group_size; e < (g + 1) * group_size; ++e) {
        experts.push_back(e);
        weights.push_back(static_cast<float>(loads[e]));
      }
    }
    const auto replicas = replicate(weights, task.layout.num_replicas / num_nodes);
    std::vector<float> shares;
    for (const int32_t e : replicas.expert_of) {
      shares.push_back(weights[e] / static_cast<float>(replicas.count[e]));
    }
    for (const auto& gpu : pack_evenly(shares, task.layout.num_gpus / num_nodes)) {
      for (const int32_t r : gpu) out.expert_of.push_back(experts[replicas.expert_of[r]]);
    }
    for (size_t e = 0; e < experts.size(); ++e) out.count[experts[e]] = replicas.count[e];
  }
  return out;
}

}  // namespace keel::balance
