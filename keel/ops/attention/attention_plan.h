// How attention's work is cut into units for the threads. Pure functions of shapes; units only
// decide who computes what, never the order of a sum.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "keel/ops/attention/attention_kernels.h"

namespace keel::ops {

// Query rows [row_begin, row_end) of a sequence, all query heads of one kv head, over the splits
// [split_begin, split_end).
struct ForwardUnit {
  int32_t sequence = 0;
  int32_t kv_head = 0;
  int32_t row_begin = 0;
  int32_t row_end = 0;
  int32_t split_begin = 0;
  int32_t split_end = 0;
  int32_t merge = -1;  // index into ForwardPlan::merges, -1: the unit is whole
};

// A long context with few query rows is cut over splits; the part that finishes last merges.
// Workspace, from `offset`: the state of part 0, then one state for each split of the other parts.
struct ForwardMerge {
  int32_t num_parts = 0;
  int32_t first_split = 0;  // end of part 0
  int32_t num_splits = 0;
  int64_t offset = 0;  // floats
};

struct ForwardPlan {
  std::vector<ForwardUnit> units;  // by falling cost
  std::vector<ForwardMerge> merges;
  int64_t workspace_floats = 0;
};

// Query vectors (rows x heads of a group) that one forward unit holds at most.
inline constexpr int kForwardVecs = 96;

// Floats of one softmax state of `vecs` query vectors: maximum, 16 partial sums, output.
inline int64_t state_floats(int64_t vecs, int head_dim) { return vecs * (1 + 16 + head_dim); }

ForwardPlan plan_forward(const AttentionShape& shape, std::span<const AttentionSequence> sequences,
                         int num_threads);

// Empty if every (row, kv head, split that the row sees) is in exactly one unit; else what is
// wrong.
std::string validate(const AttentionShape& shape, std::span<const AttentionSequence> sequences,
                     const ForwardPlan& plan);

// The keys of one split, for the sequences whose block lists agree there. Unit (group g, kv head h)
// has index g * num_kv_heads + h; it adds to dq of its rows and to dk, dv of its blocks. Groups
// come by rising split. Sums that several units add to are added in the order of units: a unit
// waits for lower ones only, so handing units out in order cannot deadlock.
struct BackwardGroup {
  static constexpr int kMaxBlocks = kKvSplit / kKvBlock;
  int32_t split = 0;
  int32_t num_blocks = 0;
  int32_t blocks[kMaxBlocks] = {};
  int32_t turn[kMaxBlocks] = {};  // earlier groups that hold the same block
  int32_t member_begin = 0;       // range in BackwardPlan::members
  int32_t member_end = 0;
};

struct BackwardPlan {
  std::vector<BackwardGroup> groups;
  std::vector<int32_t> members;          // sequence indices
  std::vector<int64_t> first_row_block;  // [sequences + 1], row blocks of earlier sequences
  int32_t rows_per_block = 0;
  int32_t num_pool_blocks = 0;  // 1 + the largest block id
};

// Query vectors that one step of the backward pass holds at most.
inline constexpr int kBackwardVecs = 96;

BackwardPlan plan_backward(const AttentionShape& shape,
                           std::span<const AttentionSequence> sequences);

}  // namespace keel::ops
