// Lays the keys and values of a packed training batch out in blocks of 16 positions, so that the
// answers of a group read the full blocks of their common prompt instead of copies. A partly filled
// last prompt block is copied for each answer: the answer's own positions continue in it.
// Pure; block 0 stays the null block.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "keel/ops/attention/attention_kernels.h"

namespace keel::ops {

// Rows [row, row + num_rows) of the batch. Without a prefix they are positions 0, 1, ...; with one
// they are positions prefix_length, ... and continue the first prefix_length positions of the
// earlier sequence `prefix` (which may have a prefix itself).
struct PackedSequence {
  int64_t row = 0;
  int32_t num_rows = 0;
  int32_t prefix = -1;
  int32_t prefix_length = 0;
};

struct KvLayout {
  KvLayout() = default;
  KvLayout(KvLayout&&) = default;  // sequences point into block_ids: move, never copy
  KvLayout& operator=(KvLayout&&) = default;

  int32_t num_blocks = 1;                    // blocks of the pool, null block included
  std::vector<KvSlot> slots;                 // for kv_scatter and kv_gather_grad
  std::vector<int32_t> block_ids;            // the block lists, one after the other
  std::vector<AttentionSequence> sequences;  // one for each input sequence, in its order
};

KvLayout make_kv_layout(std::span<const PackedSequence> sequences);

}  // namespace keel::ops
