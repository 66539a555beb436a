// Gives sequences to data-parallel ranks so that the dearest rank is as cheap as possible.
// Pure: same input, same plan; ties go to the lower index.
//
// Longest first to the lightest rank (Graham 1969), then exchanges between the dearest rank and the
// others until none helps; small cases go on with re-dealt triples of ranks. The search ends as
// soon as it is within `tolerance` of a proven lower bound.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "keel/balance/sequence_cost.h"

namespace keel::balance {

enum class CountMode {
  kFree,   // a rank may hold any number of sequences
  kEqual,  // counts differ by at most one (exactly equal where num_ranks divides the number)
};

struct SequenceBalanceOptions {
  CountMode mode = CountMode::kFree;
  int64_t cap_tokens = 0;   // most tokens a rank may hold (memory); 0 = no limit
  double tolerance = 1e-4;  // good enough: dearest rank <= lower bound * (1 + tolerance)
  int64_t effort = 500000;  // limit of the search, in looks at an item (about 5 ns each)
};

struct SequencePlan {
  std::vector<std::vector<int32_t>> ranks;  // [num_ranks] ascending sequence indices
  std::vector<int64_t> costs;               // [num_ranks]
  int64_t lower_bound = 0;                  // no plan of this mode has a cheaper dearest rank
  bool within_cap = true;  // false: cap_tokens could not be kept (validate() says where)

  int64_t max_cost() const;
};

// Throws Error(kInvalid) if num_ranks < 1, a length, coefficient or limit is negative, or the costs
// do not fit 62 bits.
SequencePlan balance_sequences(std::span<const int64_t> lengths, int32_t num_ranks,
                               const SequenceCost& cost, const SequenceBalanceOptions& options);

// Empty if each sequence is on exactly one rank, costs are right, counts and cap are kept;
// otherwise what is wrong.
std::string validate(std::span<const int64_t> lengths, int32_t num_ranks, const SequenceCost& cost,
                     const SequenceBalanceOptions& options, const SequencePlan& plan);

}  // namespace keel::balance
