// Number partitioning shared by the sequence planners: weights into parts with a small largest sum.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace keel::balance {

struct PartitionTask {
  std::span<const int64_t> weights;  // [n] >= 0
  std::span<const int64_t> tokens;   // [n] >= 0; read only where cap_tokens > 0
  int32_t num_parts = 1;
  bool equal = false;      // part sizes differ by at most one
  int64_t cap_tokens = 0;  // 0 = no limit on the tokens of a part
  double tolerance = 0;    // stop once the largest sum is within this of the bound
  int64_t effort = 0;      // looks at an item
};

struct Partition {
  std::vector<std::vector<int32_t>> parts;  // [num_parts] ascending item indices
  int64_t lower_bound = 0;                  // no partition has a smaller largest sum
};

// Deterministic.
Partition search_partition(const PartitionTask& task);

// The bound alone, of weights sorted descending: the mean, the largest, and what the j + 1 smallest
// of the j * num_parts + 1 largest weigh (two of them must meet). With equal counts the part that
// holds them is filled up with the smallest weights.
int64_t sorted_partition_bound(std::span<const int64_t> descending, int32_t num_parts, bool equal);

}  // namespace keel::balance
