#include "keel/balance/attention_blocks.h"

#include <algorithm>

#include "keel/base/error.h"

namespace keel::balance {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

void check(std::span<const AttentionRequest> requests, const AttentionShape& shape,
           int32_t num_cores, const AttentionCost& cost, const char* where) {
  KEEL_REQUIRE(shape.heads_per_kv >= 1 && shape.num_kv_heads >= 1 && shape.row_tile >= 1 &&
                   shape.kv_tile >= 1,
               "[{}] expected heads_per_kv, num_kv_heads, row_tile and kv_tile >= 1, got {}, {}, "
               "{}, {}",
               where, shape.heads_per_kv, shape.num_kv_heads, shape.row_tile, shape.kv_tile);
  KEEL_REQUIRE(num_cores >= 1, "[{}] expected num_cores >= 1, got {}", where, num_cores);
  KEEL_REQUIRE(cost.row >= 0 && cost.column >= 0 && cost.block >= 0 && cost.merge >= 0,
               "[{}] expected costs >= 0, got {}, {}, {}, {}", where, cost.row, cost.column,
               cost.block, cost.merge);
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto& r = requests[i];
    KEEL_REQUIRE(r.query_tokens >= 0 && r.kv_tokens >= 0 &&
                     (r.query_tokens <= r.kv_tokens || r.kv_tokens == 0),
                 "[{}] expected 0 <= query_tokens <= kv_tokens, got {} and {} at request {}", where,
                 r.query_tokens, r.kv_tokens, i);
  }
}

}  // namespace

int64_t RowTile::cost(int64_t first, int64_t end) const {
  if (end <= first) return 0;
  const int64_t first_tile = first / kv_tile;
  const int64_t last_tile = (end - 1) / kv_tile;
  const int64_t per_tile = (kv_tile + 63) / 64;
  int64_t widths = (end - first + 63) / 64;
  if (last_tile > first_tile) {
    widths = ((first_tile + 1) * kv_tile - first + 63) / 64 +
             (end - last_tile * kv_tile + 63) / 64 + (last_tile - first_tile - 1) * per_tile;
  }
  return (last_tile - first_tile + 1) * per_block + widths * per_64;
}

AttentionBlocks attention_blocks(std::span<const AttentionRequest> requests,
                                 const AttentionShape& shape, int32_t num_cores,
                                 const AttentionCost& cost, const char* where) {
  check(requests, shape, num_cores, cost, where);
  AttentionBlocks out;
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto [q, kv] = requests[i];
    if (q == 0 || kv == 0) continue;
    out.tile_begin.push_back(static_cast<int32_t>(out.tiles.size()));
    const int64_t rows = q * shape.heads_per_kv;
    for (int64_t first = 0; first < rows; first += shape.row_tile) {
      const int64_t m = std::min<int64_t>(shape.row_tile, rows - first);
      RowTile tile{.request = static_cast<int32_t>(i)};
      tile.row = static_cast<int32_t>(first / shape.row_tile);
      tile.rows16 = ceil_div(m, 16);
      // Keys that the tile's last query sees.
      const int64_t seen = std::clamp<int64_t>(
          first / shape.heads_per_kv + kv - q + ceil_div(m, shape.heads_per_kv), 0, kv);
      tile.num_blocks = std::max<int64_t>(ceil_div(seen, shape.kv_tile), 1);
      tile.columns = std::min<int64_t>(tile.num_blocks * shape.kv_tile, kv);
      tile.kv_tile = shape.kv_tile;
      out.num_blocks += tile.num_blocks;
      out.tiles.push_back(tile);
    }
  }
  out.tile_begin.push_back(static_cast<int32_t>(out.tiles.size()));
  out.num_blocks *= shape.num_kv_heads;
  out.uniform = out.num_blocks <= num_cores;
  for (auto& tile : out.tiles) {
    tile.per_block = out.uniform ? cost.block : cost.row * tile.rows16;
    tile.per_64 = out.uniform ? 0 : cost.column;
    out.total_cost += tile.whole() * shape.num_kv_heads;
  }
  return out;
}

}  // namespace keel::balance
