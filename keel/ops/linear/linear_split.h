// How matrix products are cut into work: register tiles of rows, row blocks and tasks. Pure
// functions of integers; none of them changes a result bit.
#pragma once

#include <algorithm>
#include <cstdint>

#include "keel/ops/packed.h"

namespace keel::ops {

inline constexpr int kTileRows = 6;       // 6 x 16 outputs fill 12 of AVX2's 16 registers
inline constexpr int64_t kRowBlock = 96;  // rows whose partial sums a thread holds
inline constexpr int kMaxLevels = 4;      // of the leaf tree: up to 16 leaves

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// [0, total) in `parts` nearly equal parts; the first ones are longer. Divides once.
class Parts {
 public:
  Parts(int64_t total, int64_t parts)
      : count_(parts), base_(total / parts), longer_(total % parts) {}
  int64_t count() const { return count_; }
  Range operator[](int64_t i) const {
    const int64_t begin = i * base_ + std::min(i, longer_);
    return {begin, begin + base_ + (i < longer_ ? 1 : 0)};
  }

 private:
  int64_t count_;
  int64_t base_;
  int64_t longer_;
};

// Equal tiles: 32 rows are 6 + 6 + 5 + 5 + 5 + 5. A tile of one or two rows appears only for one or
// two rows, where the multiply-adds' latency could not be hidden otherwise.
inline Parts tiles_of(int64_t rows) { return Parts(rows, ceil_div(rows, kTileRows)); }

// Tasks of one product: groups of panels times chunks of rows. Groups come in multiples of `step`
// panels and stay near 256 KiB, half of a common L2.
struct TaskGrid {
  int64_t panels = 0;
  int64_t panels_per_task = 1;
  int64_t row_chunks = 1;

  int64_t groups() const { return ceil_div(panels, panels_per_task); }
  int64_t size() const { return groups() * row_chunks; }
  Range panel_range(int64_t task) const {
    const int64_t begin = task % groups() * panels_per_task;
    return {begin, std::min(panels, begin + panels_per_task)};
  }
  Range row_range(int64_t task, int64_t rows) const {
    return Parts(rows, row_chunks)[task / groups()];
  }
};

inline constexpr int64_t kGroupBytes = 256 << 10;

// wanted: tasks that keep all threads busy to the end.  min_rows: rows worth a chunk of their own.
inline TaskGrid make_grid(int64_t rows, int64_t panels, int64_t panel_bytes, int64_t step,
                          int64_t wanted, int64_t min_rows) {
  TaskGrid grid{panels, 1, 1};
  int64_t group = std::max<int64_t>(1, kGroupBytes / std::max<int64_t>(1, panel_bytes));
  group = std::min(group, ceil_div(panels, std::max<int64_t>(1, wanted)));
  grid.panels_per_task = ceil_div(group, step) * step;
  if (grid.groups() < wanted && rows >= 2 * min_rows)
    grid.row_chunks = std::min(ceil_div(wanted, grid.groups()), rows / min_rows);
  return grid;
}

// Rows first: every thread keeps its part of the rows through all products and row-wise operators,
// so they stay in its core's cache. Every thread reads all weights, so it is for weights that the
// caches hold and for many rows; a decode step's few rows gained nothing.
inline bool rows_first(int64_t rows, int64_t weight_bytes, int64_t threads) {
  constexpr int64_t kCachedWeight = 4 << 20;
  return threads > 1 && rows >= kRowBlock * threads && weight_bytes <= kCachedWeight;
}

inline TaskGrid make_rows_first_grid(int64_t rows, int64_t panels, int64_t panel_bytes,
                                     int64_t step, int64_t wanted, int64_t threads) {
  constexpr int64_t kChunkRows = 192;
  TaskGrid grid{panels, 1, 1};
  grid.row_chunks = std::clamp(rows / kChunkRows / threads, int64_t{1}, int64_t{4}) * threads;
  const int64_t groups =
      std::max(ceil_div(wanted, grid.row_chunks), ceil_div(panels * panel_bytes, kGroupBytes));
  grid.panels_per_task = ceil_div(ceil_div(panels, groups), step) * step;
  return grid;
}

}  // namespace keel::ops
