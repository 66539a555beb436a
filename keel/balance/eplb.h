// DeepSeek's published expert load balancer, reproduced exactly (single-precision sums, stable
// sort): what users of EPLB expect, and the baseline of expert_placement.h.
#pragma once

#include <cstdint>
#include <span>

#include "keel/balance/expert_placement.h"

namespace keel::balance {

struct EplbTask {
  ExpertLayout layout;
  int32_t num_groups = 1;  // expert groups; hierarchical if num_nodes divides them, else global
  int32_t num_nodes = 1;
};

// loads[e]: tokens of expert e in one layer. Hierarchical: groups to nodes, replicas within a node,
// replicas to the node's GPUs; each step gives the heaviest item to the lightest place with room.
// Throws Error(kInvalid) if a load is negative or counts do not divide.
ExpertPlacement eplb(std::span<const int64_t> loads, const EplbTask& task);

}  // namespace keel::balance
