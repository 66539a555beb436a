#include <algorithm>
#include <cmath>

#include "keel/balance/attention_blocks.h"
#include "keel/balance/attention_partition.h"

namespace keel::balance {
namespace {

// Walks the blocks of all batch-heads in order and hands them out to a given number of cores.
class Walk {
 public:
  Walk(const AttentionBlocks& blocks, int32_t num_kv_heads)
      : blocks_(blocks),
        heads_(num_kv_heads),
        num_batch_heads_(static_cast<int32_t>(blocks.tile_begin.size() - 1) * num_kv_heads) {
    for (size_t r = 0; r + 1 < blocks.tile_begin.size(); ++r) {
      int64_t sum = 0;
      for (int32_t t = blocks.tile_begin[r]; t < blocks.tile_begin[r + 1]; ++t) {
        sum += blocks.tiles[t].whole();
      }
      request_cost_.push_back(sum);
    }
  }

  ContiguousSplit split(int32_t num_cores) {
    ContiguousSplit out{num_cores, {}, {}};
    at_ = {};
    left_ = blocks_.total_cost;
    enter_batch_head();
    for (int32_t c = 0; c < num_cores; ++c) {
      const int64_t limit = left_ / (num_cores - c);
      int64_t cost = 0;
      while (at_.batch_head < num_batch_heads_ && take(limit, cost)) {
      }
      out.loads.push_back(cost);
      out.ends.push_back(at_);
    }
    return out;
  }

 private:
  int32_t request() const { return at_.batch_head / heads_; }
  int32_t num_rows() const {
    return blocks_.tile_begin[request() + 1] - blocks_.tile_begin[request()];
  }
  const RowTile& tile() const { return blocks_.tiles[blocks_.tile_begin[request()] + at_.row]; }

  void enter_batch_head() {
    if (at_.batch_head >= num_batch_heads_) return;
    batch_head_left_ = request_cost_[request()];
    enter_row();
  }
  void enter_row() { row_left_ = tile().whole(); }

  // Takes the rest of the batch-head, of the row or one block, whichever fits first with half of
  // its last block beyond the limit. An empty core takes at least one block.
  bool take(int64_t limit, int64_t& cost) {
    const auto fits = [&](int64_t amount, int64_t last) {
      return 2 * (cost + amount) <= 2 * limit + last;
    };
    const auto block_cost = [](const RowTile& t, int64_t b) {
      return t.cost(b * t.kv_tile, t.block_end(b));
    };
    const RowTile& last_tile = blocks_.tiles[blocks_.tile_begin[request() + 1] - 1];
    const int64_t head_last = block_cost(last_tile, last_tile.num_blocks - 1);
    const int64_t row_last = block_cost(tile(), tile().num_blocks - 1);
    const int64_t block = block_cost(tile(), at_.block);
    int64_t taken;
    if (fits(batch_head_left_, head_last)) {
      taken = batch_head_left_;
      at_ = {at_.batch_head + 1, 0, 0};
      enter_batch_head();
    } else if (fits(row_left_, row_last)) {
      taken = row_left_;
      batch_head_left_ -= taken;
      next_row();
    } else if (fits(block, block) || cost == 0) {
      taken = block;
      batch_head_left_ -= taken;
      row_left_ -= taken;
      if (++at_.block == tile().num_blocks) next_row();
    } else {
      return false;
    }
    cost += taken;
    left_ -= taken;
    return true;
  }

  void next_row() {
    at_.block = 0;
    if (++at_.row < num_rows()) {
      enter_row();
      return;
    }
    at_ = {at_.batch_head + 1, 0, 0};
    enter_batch_head();
  }

  const AttentionBlocks& blocks_;
  int32_t heads_;
  int32_t num_batch_heads_;
  std::vector<int64_t> request_cost_;  // of one KV head
  ContiguousEnd at_;
  int64_t left_ = 0, batch_head_left_ = 0, row_left_ = 0;
};

}  // namespace

ContiguousSplit split_contiguous(std::span<const AttentionRequest> requests,
                                 const AttentionShape& shape, int32_t num_cores,
                                 const AttentionCost& cost) {
  const auto blocks =
      attention_blocks(requests, shape, num_cores, cost, "balance.attention_contiguous");
  const int64_t most = std::min<int64_t>(num_cores, blocks.num_blocks);
  const auto root =
      static_cast<int64_t>(std::sqrt(static_cast<double>(blocks.num_blocks) + 0.25) + 0.5);
  ContiguousSplit best;
  Walk walk(blocks, shape.num_kv_heads);
  const auto largest = [](const ContiguousSplit& s) {
    return *std::max_element(s.loads.begin(), s.loads.end());
  };
  for (int64_t k = std::max<int64_t>(std::min(root, most), 1); k <= most; ++k) {
    auto split = walk.split(static_cast<int32_t>(k));
    if (best.num_cores == 0 || largest(split) < largest(best)) best = std::move(split);
  }
  return best;
}

}  // namespace keel::balance
