// Forward products: for panel, for leaf, for row tile. A leaf of a panel (up to 384 x 16 values)
// stays in L1 while all rows of a block pass; rows of x are read in place.
#include <algorithm>
#include <vector>

#include "keel/base/error.h"
#include "keel/ops/linear/linear_kernels.h"
#include "keel/ops/linear/linear_work.h"
#include "keel/ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "keel/ops/linear/linear_forward_cpu.cc"
#include <hwy/foreach_target.h>
// After foreach_target:
#include <hwy/highway.h>

#include "keel/ops/linear/linear_tile-inl.h"

#ifndef KEEL_OPS_LINEAR_FORWARD_ONCE
#define KEEL_OPS_LINEAR_FORWARD_ONCE
namespace keel::ops {
namespace {

struct ForwardJob {
  PackedView w;
  const float* x;
  int64_t ldx;
  int64_t rows;
  float* y;
  int64_t ldy;
  LinearEpilogue epilogue;
};

}  // namespace
}  // namespace keel::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace keel::ops::HWY_NAMESPACE {
namespace {

// One row of 16 finished sums.
HWY_INLINE void finish_full(const LinearEpilogue& e, int64_t row, int64_t column, const VF* sum,
                            float* y) {
  const F32 d;
  unroll<kVecs>([&](auto i) {
    VF v = sum[i];
    if (e.bias != nullptr) v = hn::Add(v, hn::LoadU(d, e.bias + column + i * kLanes));
    if (e.round_bf16) v = round_bf16(v);
    if (e.residual != nullptr) {
      v = hn::Add(v, hn::LoadU(d, e.residual + row * e.ld_residual + column + i * kLanes));
      if (e.round_bf16) v = round_bf16(v);
    }
    hn::StoreU(v, d, y + i * kLanes);
  });
}

// The last panel of an n that is no multiple of 16: nothing past n is read or written.
HWY_NOINLINE void finish_part(const LinearEpilogue& e, int64_t row, int64_t column, int width,
                              const float* sum, float* y) {
  float bias[kPanel] = {};
  float residual[kPanel] = {};
  float out[kPanel];
  LinearEpilogue padded{nullptr, nullptr, 0, e.round_bf16};
  if (e.bias != nullptr) {
    std::copy_n(e.bias + column, width, bias);
    padded.bias = bias;
  }
  if (e.residual != nullptr) {
    std::copy_n(e.residual + row * e.ld_residual + column, width, residual);
    padded.residual = residual;
  }
  VF v[kVecs];
  load_panel_row(sum, v);
  finish_full(padded, 0, 0, v, out);
  std::copy_n(out, width, y);
}

template <int R, int P>
HWY_INLINE void finish(const ForwardJob& job, int64_t row, int64_t panel, Tile<R, P>& acc) {
  const F32 d;
  unroll<P>([&](auto p) {
    const int64_t column = (panel + p) * kPanel;
    const int64_t width = job.w.n - column;
    unroll<R>([&](auto r) {
      float* y = job.y + (row + r) * job.ldy + column;
      if (width >= kPanel) {
        finish_full(job.epilogue, row + r, column, &acc.at(r, p, 0), y);
      } else {
        float sum[kPanel];
        unroll<kVecs>([&](auto i) { hn::StoreU(acc.at(r, p, i), d, sum + i * kLanes); });
        finish_part(job.epilogue, row + r, column, static_cast<int>(width), sum, y);
      }
    });
  });
}

// What a tile needs besides its row and panel.
struct LeafRun {
  const ForwardJob& job;
  LeafTree tree;
  int leaf;
  int64_t k_begin;
  int64_t k_end;
};

template <int R, int P, class T>
HWY_NOINLINE void run_tile(const LeafRun& run, int64_t row, int64_t panel, float* at) {
  const ForwardJob& job = run.job;
  const int64_t panel_stride = job.w.k * kPanel;
  const T* b = static_cast<const T*>(job.w.data) + panel * panel_stride + run.k_begin * kPanel;
  Tile<R, P> acc;
  clear(acc);
  multiply(job.x + row * job.ldx + run.k_begin, job.ldx, b, panel_stride, run.k_end - run.k_begin,
           acc);
  if (merge_leaf(run.leaf, job.w.num_leaves, run.tree, at, acc)) finish(job, row, panel, acc);
}

// Panels [panel, panel + count), the widest tile first.
template <int R, int P, class T>
HWY_INLINE void run_panels(const LeafRun& run, int64_t row, int64_t panel, int64_t count,
                           float* at) {
  for (; count >= P; count -= P, panel += P, at += P * kPanel)
    run_tile<R, P, T>(run, row, panel, at);
  if constexpr (P > 1) {
    if (count > 0) run_panels<R, P / 2, T>(run, row, panel, count, at);
  }
}

template <class T>
HWY_INLINE void run_rows(const LeafRun& run, int64_t tile_rows, int64_t row, int64_t panel,
                         int64_t count, float* at) {
  switch (tile_rows) {
    case 1:
      return run_panels<1, tile_panels(1), T>(run, row, panel, count, at);
    case 2:
      return run_panels<2, tile_panels(2), T>(run, row, panel, count, at);
    case 3:
      return run_panels<3, tile_panels(3), T>(run, row, panel, count, at);
    case 4:
      return run_panels<4, tile_panels(4), T>(run, row, panel, count, at);
    case 5:
      return run_panels<5, tile_panels(5), T>(run, row, panel, count, at);
    default:
      return run_panels<6, tile_panels(6), T>(run, row, panel, count, at);
  }
}

int64_t panel_step(int64_t rows) {
  return tile_panels(static_cast<int>(rows / ceil_div(rows, kTileRows)));
}

template <class T>
void run_block(const ForwardJob& job, Range panels, Range rows) {
  constexpr int64_t kTreeRow = kWide * kRowBlock * kPanel;  // also covers few rows, more panels
  alignas(64) float levels[kMaxLevels * kTreeRow];
  const int64_t step = panel_step(rows.size());
  const Parts tiles = tiles_of(rows.size());
  const LeafTree tree{levels, rows.size() * step * kPanel, step * kPanel};
  for (int64_t panel = panels.begin; panel < panels.end; panel += step) {
    const int64_t count = std::min(step, panels.end - panel);
    for (int leaf = 0; leaf < job.w.num_leaves; ++leaf) {
      const LeafRun run{job, tree, leaf, leaf_begin(job.w.k, job.w.num_leaves, leaf),
                        leaf_begin(job.w.k, job.w.num_leaves, leaf + 1)};
      for (int64_t t = 0; t < tiles.count(); ++t) {
        const Range tile = tiles[t];
        run_rows<T>(run, tile.size(), rows.begin + tile.begin, panel, count,
                    levels + tile.begin * tree.stride);
      }
    }
  }
}

void forward_task(const ForwardJob& job, Range panels, Range rows) {
  const Parts blocks(rows.size(), ceil_div(rows.size(), kRowBlock));
  for (int64_t b = 0; b < blocks.count(); ++b) {
    const Range block{rows.begin + blocks[b].begin, rows.begin + blocks[b].end};
    if (job.w.dtype == DType::kF32) {
      run_block<float>(job, panels, block);
    } else {
      run_block<uint16_t>(job, panels, block);
    }
  }
}

int64_t forward_step(int64_t rows) { return panel_step(std::min(rows, kRowBlock)); }

}  // namespace
}  // namespace keel::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keel::ops {
namespace {

HWY_EXPORT(forward_task);
HWY_EXPORT(forward_step);

constexpr int64_t kMinChunkRows = 48;

void check_view(const PackedView& w) {
  KEEL_CHECK(w.num_leaves >= 1 && w.num_leaves <= (1 << kMaxLevels) &&
                 (w.num_leaves & (w.num_leaves - 1)) == 0,
             "{} leaves", w.num_leaves);
}

TaskGrid forward_grid(const ForwardJob& job, int64_t wanted) {
  const int64_t panels = num_panels(job.w.n), threads = compute_pool().num_threads();
  const int64_t bytes = job.w.k * kPanel * (job.w.dtype == DType::kF32 ? 4 : 2);
  const auto step = HWY_DYNAMIC_DISPATCH(forward_step);
  if (wanted > 1 && rows_first(job.rows, panels * bytes, threads))
    return make_rows_first_grid(job.rows, panels, bytes, step(ceil_div(job.rows, threads)), wanted,
                                threads);
  return make_grid(job.rows, panels, bytes, step(job.rows), wanted, kMinChunkRows);
}

}  // namespace

void linear_forward(const PackedView& w, const float* x, int64_t ldx, int64_t m, float* y,
                    int64_t ldy, const LinearEpilogue& epilogue) {
  if (m == 0 || w.n == 0) return;
  check_view(w);
  const ForwardJob job{w, x, ldx, m, y, ldy, epilogue};
  const TaskGrid grid = forward_grid(job, wanted_tasks(m * w.k * num_panels(w.n) * kPanel));
  const auto task = HWY_DYNAMIC_DISPATCH(forward_task);
  compute_pool().parallel_for(
      grid.size(), [&](int64_t i, int) { task(job, grid.panel_range(i), grid.row_range(i, m)); });
}

void grouped_linear_forward(std::span<const PackedView> experts, std::span<const int64_t> offsets,
                            const float* x, int64_t ldx, float* y, int64_t ldy, bool round_bf16) {
  KEEL_CHECK(offsets.size() == experts.size() + 1, "{} offsets for {} experts", offsets.size(),
             experts.size());
  if (experts.empty() || offsets.back() == offsets.front()) return;
  const int64_t total_rows = offsets.back() - offsets.front();
  const int64_t wanted =
      wanted_tasks(total_rows * experts[0].k * num_panels(experts[0].n) * kPanel);
  std::vector<WorkItem<ForwardJob>> items;
  for (size_t e = 0; e < experts.size(); ++e) {
    const int64_t rows = offsets[e + 1] - offsets[e];
    if (rows == 0) continue;
    check_view(experts[e]);
    const ForwardJob job{experts[e],
                         x + offsets[e] * ldx,
                         ldx,
                         rows,
                         y + offsets[e] * ldy,
                         ldy,
                         {nullptr, nullptr, 0, round_bf16}};
    items.push_back({job, forward_grid(job, ceil_div(wanted * rows, total_rows))});
  }
  run_items(items, wanted == 1, HWY_DYNAMIC_DISPATCH(forward_task));
}

}  // namespace keel::ops
#endif  // HWY_ONCE
