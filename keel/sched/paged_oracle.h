// Test double for a paged KV cache: each slot holds a hash of its token and everything before it,
// read back through the blocks of the plan. A wrong table, slot or copy changes the hash.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "keel/base/rng.h"
#include "keel/sched/scheduler.h"

namespace keel::sched::test {

class PagedOracle {
 public:
  explicit PagedOracle(int32_t num_blocks) : slots_(num_blocks) {}

  static uint64_t chain(uint64_t before, int32_t token) {
    return mix_key(before, static_cast<uint32_t>(token));
  }

  void copy(const BlockCopy& c) { slots_[c.to] = slots_[c.from]; }

  // Hash at `position` of the sequence that owns `blocks`; start: hash of the empty sequence.
  uint64_t write(uint64_t start, const int32_t* blocks, int32_t position, int32_t token) {
    const uint64_t before = position == 0 ? start : at(blocks, position - 1);
    return at(blocks, position) = chain(before, token);
  }

 private:
  uint64_t& at(const int32_t* blocks, int32_t position) {
    return slots_[blocks[position / kBlockTokens]][position % kBlockTokens];
  }

  std::vector<std::array<uint64_t, kBlockTokens>> slots_;
};

}  // namespace keel::sched::test
