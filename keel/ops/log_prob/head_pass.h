// One pass of the head over all vocabulary tiles: the numbers that training and sampling share
// (internal).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "keel/base/thread_pool.h"
#include "keel/ops/log_prob/log_prob_kernels.h"
#include "keel/ops/log_prob/log_prob_tile.h"

namespace keel::ops {

// Tile statistics of rows: [rows][stride] each, stride = tiles rounded up to 16.
class HeadStats {
 public:
  HeadStats(int64_t rows, int64_t vocab);

  int64_t num_tiles() const { return num_tiles_; }
  void set(int64_t row, int64_t tile, const TileStats& stats);
  const float* max(int64_t row) const { return &max_[row * stride_]; }

  // Statistics of the whole row, tiles merged in order.
  struct Row {
    float max = 0;
    double sum = 0;       // of exp(l - max)
    double weighted = 0;  // of exp(l - max) * (l - max)
    float log_prob(float logit) const;
    float lse() const;
    float entropy() const;
  };
  // weights (optional): stride() values, the share of each tile in `sum`.
  Row merge(int64_t row, std::vector<float>* weights = nullptr) const;

 private:
  int64_t num_tiles_;
  int64_t stride_;
  std::vector<float> max_, sum_, weighted_;
};

// A row's kept ids; empty = all.
std::span<const int32_t> kept_of(const KeptIds& kept, int64_t row);

// Sets scaled logits of a tile that are not kept to -inf; `kept` may be empty (nothing changes).
// False if no column of the tile is left.
bool mask_tile(std::span<const int32_t> kept, int64_t tile, int64_t width, float* logits);

inline int64_t tile_width(int64_t vocab, int64_t tile) {
  return std::min(kVocabTile, vocab - tile * kVocabTile);
}

// Scaled, masked and padded logits of one row and tile, on the thread that made them; the visitor
// may overwrite them. any: some column counts (else logits hold nothing).
using TileVisitor = FunctionRef<void(int64_t row, int64_t tile, float* logits, bool any)>;

// Visits every row and every tile in [tile_begin, tile_end) once, in one parallel region over
// blocks of rows and tiles.
void visit_tiles(const PackedView& head, const float* x, int64_t ldx, int64_t rows,
                 int64_t tile_begin, int64_t tile_end, const float* temperature,
                 const KeptIds& kept, TileVisitor visit);

// The same logits of one row and tile, not masked.  logits: kVocabTile values.
void row_tile_logits(const PackedView& head, const float* x, int64_t tile, float temperature,
                     float* logits);

}  // namespace keel::ops
