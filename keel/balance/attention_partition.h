// Spreads the attention of a ragged batch (decode, causal prefill or both) over the cores of a
// device. Pure: same input, same plan; ties go to the lower index.
//
// A row tile (row_tile rows = query tokens x query heads of one KV head) reads its keys in blocks
// of kv_tile tokens from position 0. A row may be cut between cores only at multiples of a fixed
// split size. Each piece of that size is reduced on its own, and pieces are merged in a fixed
// binary tree over their positions (pieces 2k and 2k + 1 first): the result of a row depends on its
// own length alone, not on the batch, the number of cores or the cut. A core that holds consecutive
// pieces writes one partial result for each largest subtree it holds completely.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace keel::balance {

struct AttentionRequest {
  int64_t query_tokens = 0;  // 0 = idle slot
  int64_t kv_tokens = 0;     // >= query_tokens; query i of q sees the first kv - q + i + 1
};

struct AttentionShape {
  int32_t heads_per_kv = 1;  // query heads that share a KV head
  int32_t num_kv_heads = 1;
  int32_t row_tile = 16;
  int32_t kv_tile = 512;
};

// Cost of a block of m rows and s columns: row_cost * ceil(m / 16) + column_cost * ceil(s / 64), as
// in CANN 8.3; `block` for every block where there are no more blocks than cores. merge: reading
// and adding one partial result of 16 rows, spread over all cores.
struct AttentionCost {
  int64_t row = 6;
  int64_t column = 10;
  int64_t block = 10;
  int64_t merge = 5;
};

// Consecutive keys of one row tile.
struct AttentionRun {
  int32_t request = 0;
  int32_t kv_head = 0;
  int32_t row = 0;       // row tile within the request
  int64_t kv_begin = 0;  // multiple of the split size
  int64_t kv_end = 0;    // multiple of the split size or the end of the row's blocks
};

struct AttentionOptions {
  int64_t split_tokens = 128;  // divides kv_tile or is a multiple of it; constant for a model
  double tolerance = 5e-3;     // good enough: dearest core <= lower bound * (1 + tolerance)
};

struct AttentionPlan {
  std::vector<std::vector<AttentionRun>> cores;  // [num_cores]
  std::vector<int64_t> loads;                    // [num_cores] without merging
  int64_t num_partials = 0;                      // partial results written because their row is cut
  int64_t merge_cost = 0;                        // of those, over all cores
  int64_t lower_bound = 0;                       // of the largest load: mean core or largest piece

  int64_t max_load() const;
};

// Candidates, compared by largest load plus merging: whole rows longest first to the lightest core;
// the same after rows above a limit were cut evenly, for several limits; rows one after the other,
// each core filled to the same limit (McNaughton 1959). While there are no more blocks than cores,
// cuts are at whole blocks. Throws Error(kInvalid) if a size is < 1, num_cores < 1, a cost or
// length is negative or a request has more queries than keys or split_tokens does not fit kv_tile.
AttentionPlan plan_attention(std::span<const AttentionRequest> requests,
                             const AttentionShape& shape, int32_t num_cores,
                             const AttentionCost& cost = {}, const AttentionOptions& options = {});

// Empty if every block is covered once, cuts are at multiples of the split size and loads are
// right; otherwise what is wrong.
std::string validate(std::span<const AttentionRequest> requests, const AttentionShape& shape,
                     int32_t num_cores, const AttentionCost& cost, const AttentionOptions& options,
                     const AttentionPlan& plan);

// Where a core ends in the published contiguous split: (batch-head, row tile, block), open, with
// batch-heads of idle requests left out.
struct ContiguousEnd {
  int32_t batch_head = 0;
  int32_t row = 0;
  int32_t block = 0;
  bool operator==(const ContiguousEnd&) const = default;
};

struct ContiguousSplit {
  int32_t num_cores = 0;            // used; the others stay idle
  std::vector<int64_t> loads;       // [num_cores]
  std::vector<ContiguousEnd> ends;  // [num_cores]
};

// CANN 8.3's rule for fused inference attention (FIA), reproduced exactly: for each number of cores
// from about sqrt(blocks), walk the blocks in order and close a core near the mean of what is left,
// with half a block's tolerance; the first number with the smallest largest load. Its cuts move
// with the batch, so results are not batch-invariant: the baseline of plan_attention.
ContiguousSplit split_contiguous(std::span<const AttentionRequest> requests,
                                 const AttentionShape& shape, int32_t num_cores,
                                 const AttentionCost& cost = {});

}  // namespace keel::balance
