// Splits sequences into micro-batches under a token cap, the same number on every rank, for ranks
// that advance in lockstep (pipeline stages, expert all-to-all, ZeRO-3): first as few micro-batches
// per rank as possible, then the cheapest sum over positions of the dearest micro-batch there.
// Pure: same input, same plan; ties go to the lower index.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "keel/balance/sequence_cost.h"

namespace keel::balance {

struct LockstepTask {
  int64_t cap_tokens = 0;  // > 0; only a lone longer sequence may pass it
  int32_t num_ranks = 1;
  SequenceCost cost = {};
  int64_t effort = 3000000;  // limit of the search for fewer micro-batches, in steps (about 0.1 us)
};

struct LockstepPlan {
  // [rank][position] ascending sequence indices. Cheap positions come first and last, dear ones in
  // the middle, where a pipeline is full. Empty micro-batches only where there are too few
  // sequences for one each.
  std::vector<std::vector<std::vector<int32_t>>> ranks;
  std::vector<int32_t> oversized;  // sequences longer than the cap, ascending
  int32_t lower_bound = 0;         // no plan has fewer micro-batches per rank
  int64_t lockstep_cost = 0;       // sum over positions of the dearest micro-batch

  int32_t num_positions() const {
    return ranks.empty() ? 0 : static_cast<int32_t>(ranks.front().size());
  }
};

// Throws Error(kInvalid) if cap_tokens or num_ranks < 1, a length or coefficient is negative, or
// the costs do not fit 62 bits.
LockstepPlan plan_lockstep_batches(std::span<const int64_t> lengths, const LockstepTask& task);

// Empty if each sequence is in exactly one micro-batch, ranks have equally many, the cap holds and
// the stated cost is right; otherwise what is wrong.
std::string validate(std::span<const int64_t> lengths, const LockstepTask& task,
                     const LockstepPlan& plan);

}  // namespace keel::balance
