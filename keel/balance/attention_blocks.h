// Row tiles and block costs, shared by the two attention planners.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "keel/balance/attention_partition.h"

namespace keel::balance {

struct RowTile {
  int32_t request = 0;
  int32_t row = 0;
  int64_t rows16 = 1;      // ceil(rows / 16)
  int64_t num_blocks = 0;  // >= 1
  int64_t columns = 0;     // keys read: whole blocks, the last one up to the end of the request
  int64_t kv_tile = 1;
  int64_t per_block = 0;  // cost of a block of any width
  int64_t per_64 = 0;     // and of each 64 columns of it

  int64_t block_end(int64_t block) const { return std::min((block + 1) * kv_tile, columns); }
  // Cost of the columns first .. end - 1, in blocks that begin at multiples of kv_tile.
  int64_t cost(int64_t first, int64_t end) const;
  int64_t whole() const { return cost(0, columns); }
};

struct AttentionBlocks {
  std::vector<RowTile> tiles;       // of one KV head, in (request, row) order, idle ones left out
  std::vector<int32_t> tile_begin;  // of each request that is not idle, and the end
  int64_t num_blocks = 0;           // over all KV heads
  int64_t total_cost = 0;           // over all KV heads
  bool uniform = false;             // no more blocks than cores: every block costs the same
};

// Checks the input (errors start with [where]) and lists its row tiles.
AttentionBlocks attention_blocks(std::span<const AttentionRequest> requests,
                                 const AttentionShape& shape, int32_t num_cores,
                                 const AttentionCost& cost, const char* where);

}  // namespace keel::balance
