// Data rebalance: the order in which a batch of prompts with several samples each is generated.
// Pure permutations; "prompt order" is p0 p0 .. p1 p1 .., "round order" is p0 p1 .. p0 p1 ...
//
// Contiguous chunks of the round order put the samples of one prompt on different ranks, so a
// prompt with long answers does not make one rank the slowest.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace keel::balance {

struct InterleavePlan {
  std::vector<int32_t> order;    // [n] order[k]: place in prompt order of the k-th sample to run
  std::vector<int32_t> restore;  // [n] restore[i]: place in run order of sample i of prompt order
  std::vector<int32_t> rank_begin;  // [num_ranks + 1] rank r runs order[rank_begin[r] .. [r + 1])
};

// Round order, in contiguous chunks whose sizes differ by at most one.
// Throws Error(kInvalid) if a count is negative, num_ranks < 1 or there are 2^31 samples or more.
InterleavePlan interleave(int32_t num_prompts, int32_t samples_per_prompt, int32_t num_ranks);

// Empty if order and restore are inverse permutations and the chunks cover them; otherwise what is
// wrong.
std::string validate(const InterleavePlan& plan);

// out[k] = rows[order[k]]: what `restore` undoes when it is applied the same way.
template <class T>
std::vector<T> permuted(std::span<const T> rows, std::span<const int32_t> order) {
  std::vector<T> out;
  out.reserve(order.size());
  for (const int32_t i : order) out.push_back(rows[i]);
  return out;
}

}  // namespace keel::balance
