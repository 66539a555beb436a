// dx = dy w on the packed weights of the forward pass: 16 x 16 blocks of w are transposed into a
// small buffer, then the forward tile runs over n. No second copy of the weights exists.
#include <algorithm>
#include <memory>
#include <vector>

#include "keel/base/error.h"
#include "keel/ops/linear/linear_kernels.h"
#include "keel/ops/linear/linear_work.h"
#include "keel/ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "keel/ops/linear/linear_grad_input_cpu.cc"
#include <hwy/foreach_target.h>
// After foreach_target:
#include <hwy/highway.h>

#include "keel/ops/linear/linear_tile-inl.h"

#ifndef KEEL_OPS_LINEAR_GRAD_INPUT_ONCE
#define KEEL_OPS_LINEAR_GRAD_INPUT_ONCE
namespace keel::ops {
namespace {

constexpr int64_t kGradRows = 256;  // rows that share one transposed block
constexpr int64_t kSliceN = 384;    // outputs transposed at a time: 24 KiB of L1

struct GradInputJob {
  PackedView w;
  const float* dy;
  int64_t lddy;
  int64_t rows;
  float* dx;
  int64_t lddx;
  bool accumulate;
};

}  // namespace
}  // namespace keel::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace keel::ops::HWY_NAMESPACE {
namespace {

// to[j][c] = from[c][j] for 16 x 16 values; rows of `from` are 16 apart.
HWY_INLINE void transpose_block(const float* HWY_RESTRICT from, float* HWY_RESTRICT to) {
#if HWY_TARGET == HWY_SCALAR
  for (int c = 0; c < 16; ++c)
    for (int j = 0; j < 16; ++j) to[j * 16 + c] = from[c * 16 + j];
#else
  const hn::CappedTag<float, 4> d;
  const hn::Repartition<double, decltype(d)> dd;
  const auto pairs = [&](auto a, auto b) { return hn::BitCast(dd, hn::InterleaveLower(d, a, b)); };
  const auto pairs_up = [&](auto a, auto b) {
    return hn::BitCast(dd, hn::InterleaveUpper(d, a, b));
  };
  for (int c = 0; c < 16; c += 4) {
    for (int j = 0; j < 16; j += 4) {
      const float* in = from + c * 16 + j;
      float* out = to + j * 16 + c;
      const auto r0 = hn::LoadU(d, in);
      const auto r1 = hn::LoadU(d, in + 16);
      const auto r2 = hn::LoadU(d, in + 32);
      const auto r3 = hn::LoadU(d, in + 48);
      const auto low01 = pairs(r0, r1);
      const auto low23 = pairs(r2, r3);
      const auto up01 = pairs_up(r0, r1);
      const auto up23 = pairs_up(r2, r3);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, low01, low23)), d, out);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, low01, low23)), d, out + 16);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, up01, up23)), d, out + 32);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, up01, up23)), d, out + 48);
    }
  }
#endif
}

// out[j - j0][c] = w[j][k_begin + c] for j from j0 = slice.begin rounded down to a panel, c < 16;
// zero where k ends.
template <class T>
void transpose_slice(const PackedView& w, Range slice, int64_t k_begin, float* out) {
  const F32 d;
  const auto width = static_cast<int>(std::min(kPanel, w.k - k_begin));
  alignas(64) float block[16 * 16] = {};
  for (int64_t j = slice.begin / kPanel * kPanel; j < slice.end; j += kPanel) {
    const T* panel = static_cast<const T*>(w.data) + j * w.k + k_begin * kPanel;
    for (int c = 0; c < width; ++c) {
      VF row[kVecs];
      load_panel_row(panel + c * kPanel, row);
      unroll<kVecs>([&](auto i) { hn::StoreU(row[i], d, block + c * 16 + i * kLanes); });
    }
    transpose_block(block, out);
    out += kPanel * kPanel;
  }
}

// A slice of one leaf of n; `open` means sums of the leaf's earlier slices wait.
struct NRun {
  Range n;
  const float* b;
  int64_t b_stride;
  int leaf;
  bool open;
  bool closes;
};

template <int R, int P>
HWY_INLINE void finish_grad(const GradInputJob& job, int64_t row, int64_t panel, Tile<R, P>& acc) {
  const F32 d;
  unroll<P>([&](auto p) {
    const int64_t column = (panel + p) * kPanel;
    const int64_t width = std::min(kPanel, job.w.k - column);
    unroll<R>([&](auto r) {
      float* dx = job.dx + (row + r) * job.lddx + column;
      alignas(64) float sum[kPanel];
      unroll<kVecs>([&](auto i) {
        VF v = acc.at(r, p, i);
        if (width < kPanel) {
          hn::Store(v, d, sum + i * kLanes);
        } else {
          if (job.accumulate) v = hn::Add(hn::LoadU(d, dx + i * kLanes), v);
          hn::StoreU(v, d, dx + i * kLanes);
        }
      });
      if (width < kPanel)
        for (int64_t c = 0; c < width; ++c) dx[c] = job.accumulate ? dx[c] + sum[c] : sum[c];
    });
  });
}

template <int R, int P>
HWY_NOINLINE void grad_tile(const GradInputJob& job, const NRun& run, const LeafTree& tree,
                            float* open_sums, int64_t row, int64_t panel, float* at) {
  Tile<R, P> acc;
  float* open_at = open_sums + (at - tree.data);
  if (run.open) {
    load(open_at, tree.stride, acc);
  } else {
    clear(acc);
  }
  multiply(job.dy + row * job.lddy + run.n.begin, job.lddy, run.b, run.b_stride, run.n.size(), acc);
  if (!run.closes) {
    store(acc, open_at, tree.stride);
  } else if (merge_leaf(run.leaf, num_leaves_for(job.w.n), tree, at, acc)) {
    finish_grad(job, row, panel, acc);
  }
}

// Panels of k are taken one (AVX-512: two) at a time by tiles of any height.
template <int R>
HWY_INLINE void grad_panels(const GradInputJob& job, const NRun& run, const LeafTree& tree,
                            float* open_sums, int64_t row, Range panels, float* at) {
  if constexpr (kWide == 2) {
    if (panels.size() == 2)
      return grad_tile<R, kWide>(job, run, tree, open_sums, row, panels.begin, at);
  }
  grad_tile<R, 1>(job, run, tree, open_sums, row, panels.begin, at);
}

HWY_INLINE void grad_rows(const GradInputJob& job, const NRun& run, const LeafTree& tree,
                          float* open_sums, int64_t tile_rows, int64_t row, Range panels,
                          float* at) {
  switch (tile_rows) {
    case 1:
      return grad_panels<1>(job, run, tree, open_sums, row, panels, at);
    case 2:
      return grad_panels<2>(job, run, tree, open_sums, row, panels, at);
    case 3:
      return grad_panels<3>(job, run, tree, open_sums, row, panels, at);
    case 4:
      return grad_panels<4>(job, run, tree, open_sums, row, panels, at);
    case 5:
      return grad_panels<5>(job, run, tree, open_sums, row, panels, at);
    default:
      return grad_panels<6>(job, run, tree, open_sums, row, panels, at);
  }
}

struct GradScratch {
  static constexpr int64_t kSliceStride = (kSliceN + 2 * kPanel) * kPanel;
  static constexpr int64_t kSums = kWide * kGradRows * kPanel;
  alignas(64) float slice[kWide * kSliceStride];
  alignas(64) float levels[kMaxLevels * kSums];
  alignas(64) float open[kSums];
};

// All of n for panels (at most kWide) and rows (at most kGradRows).
void grad_block(const GradInputJob& job, Range panels, Range rows, GradScratch& scratch) {
  const int leaves = num_leaves_for(job.w.n);
  const int64_t stride = panels.size() * kPanel;
  const LeafTree tree{scratch.levels, rows.size() * stride, stride};
  const Parts tiles = tiles_of(rows.size());
  for (int leaf = 0; leaf < leaves; ++leaf) {
    const Range bounds{leaf_begin(job.w.n, leaves, leaf), leaf_begin(job.w.n, leaves, leaf + 1)};
    const Parts slices(bounds.size(), ceil_div(bounds.size(), kSliceN));
    for (int64_t s = 0; s < slices.count(); ++s) {
      const Range slice{bounds.begin + slices[s].begin, bounds.begin + slices[s].end};
      for (int64_t p = panels.begin; p < panels.end; ++p) {
        float* out = scratch.slice + (p - panels.begin) * GradScratch::kSliceStride;
        if (job.w.dtype == DType::kF32) {
          transpose_slice<float>(job.w, slice, p * kPanel, out);
        } else {
          transpose_slice<uint16_t>(job.w, slice, p * kPanel, out);
        }
      }
      const NRun run{slice,
                     scratch.slice + slice.begin % kPanel * kPanel,
                     GradScratch::kSliceStride,
                     leaf,
                     s != 0,
                     s + 1 == slices.count()};
      for (int64_t t = 0; t < tiles.count(); ++t)
        grad_rows(job, run, tree, scratch.open, tiles[t].size(), rows.begin + tiles[t].begin,
                  panels, scratch.levels + tiles[t].begin * stride);
    }
  }
}

void grad_input_task(const GradInputJob& job, Range panels, Range rows) {
  static thread_local const auto scratch = std::make_unique<GradScratch>();
  const Parts blocks(rows.size(), ceil_div(rows.size(), kGradRows));
  for (int64_t b = 0; b < blocks.count(); ++b) {
    const Range block = blocks[b];
    for (int64_t p = panels.begin; p < panels.end; p += kWide)
      grad_block(job, {p, std::min(panels.end, p + kWide)},
                 {rows.begin + block.begin, rows.begin + block.end}, *scratch);
  }
}

int64_t grad_input_step() { return kWide; }

}  // namespace
}  // namespace keel::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keel::ops {
namespace {

HWY_EXPORT(grad_input_task);
HWY_EXPORT(grad_input_step);

TaskGrid grad_input_grid(const GradInputJob& job, int64_t wanted) {
  return make_grid(job.rows, num_panels(job.w.k), job.w.n * kPanel * 4,
                   HWY_DYNAMIC_DISPATCH(grad_input_step)(), wanted, kGradRows / 2);
}

}  // namespace

void linear_grad_input(const PackedView& w, const float* dy, int64_t lddy, int64_t m, float* dx,
                       int64_t lddx, bool accumulate) {
  if (m == 0 || w.k == 0) return;
  const GradInputJob job{w, dy, lddy, m, dx, lddx, accumulate};
  const int64_t wanted = wanted_tasks(m * w.n * num_panels(w.k) * kPanel);
  const TaskGrid grid = grad_input_grid(job, wanted);
  const auto task = HWY_DYNAMIC_DISPATCH(grad_input_task);
  compute_pool().parallel_for(
      grid.size(), [&](int64_t i, int) { task(job, grid.panel_range(i), grid.row_range(i, m)); });
}

void grouped_linear_grad_input(std::span<const PackedView> experts,
                               std::span<const int64_t> offsets, const float* dy, int64_t lddy,
                               float* dx, int64_t lddx) {
  KEEL_CHECK(offsets.size() == experts.size() + 1, "{} offsets for {} experts", offsets.size(),
             experts.size());
  if (experts.empty() || offsets.back() == offsets.front()) return;
  const int64_t total_rows = offsets.back() - offsets.front();
  const int64_t wanted =
      wanted_tasks(total_rows * experts[0].n * num_panels(experts[0].k) * kPanel);
  std::vector<WorkItem<GradInputJob>> items;
  for (size_t e = 0; e < experts.size(); ++e) {
    const int64_t rows = offsets[e + 1] - offsets[e];
    if (rows == 0) continue;
    const GradInputJob job{
        experts[e], dy + offsets[e] * lddy, lddy, rows, dx + offsets[e] * lddx, lddx, false};
    items.push_back({job, grad_input_grid(job, ceil_div(wanted * rows, total_rows))});
  }
  run_items(items, wanted == 1, HWY_DYNAMIC_DISPATCH(grad_input_task));
}

}  // namespace keel::ops
#endif  // HWY_ONCE
