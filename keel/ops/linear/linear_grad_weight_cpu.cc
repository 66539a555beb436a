// dw += dy^T x in the packed layout: the tile is 6 inputs x 16 outputs, summed over chunks of rows;
// both operands of a chunk are copied into tile order first, because rows of x often lie a large
// power of two apart.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "keel/base/error.h"
#include "keel/ops/linear/linear_kernels.h"
#include "keel/ops/linear/linear_work.h"
#include "keel/ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "keel/ops/linear/linear_grad_weight_cpu.cc"
#include <hwy/foreach_target.h>
// After foreach_target:
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "keel/ops/linear/linear_tile-inl.h"

#ifndef KEEL_OPS_LINEAR_GRAD_WEIGHT_ONCE
#define KEEL_OPS_LINEAR_GRAD_WEIGHT_ONCE
namespace keel::ops {
namespace {

constexpr int64_t kChunkRows = 256;  // a fixed part of the order of sums
constexpr int64_t kBlockK = 192;     // inputs packed at a time: 192 KiB of x, a part of L2

struct GradWeightJob {
  const float* x;
  int64_t ldx;
  const float* dy;
  int64_t lddy;
  int64_t num_rows;  // summed over
  int64_t n;
  int64_t k;
  float* dw;
  int64_t rows;  // blocks of k: what the task grid calls rows
};

}  // namespace
}  // namespace keel::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace keel::ops::HWY_NAMESPACE {
namespace {

// A tile's x values lie as [rows][K] here; column kk of the tile is what multiply() calls row kk.
template <int K, int P>
HWY_INLINE void outer_products(const float* HWY_RESTRICT x, const float* HWY_RESTRICT dy,
                               int64_t dy_stride, int64_t rows, Tile<K, P>& acc) {
  const F32 d;
  Tile<K, P> sum = acc;
  for (int64_t row = 0; row < rows; ++row) {
    VF g[P * kVecs];
    unroll<P>([&](auto p) { load_panel_row(dy + p * dy_stride + row * kPanel, g + p * kVecs); });
    unroll<K>([&](auto kk) {
      const VF a = hn::Set(d, x[row * K + kk]);
      unroll<P * kVecs>([&](auto i) {
        sum.v[kk * P * kVecs + i] = hn::MulAdd(a, g[i], sum.v[kk * P * kVecs + i]);
      });
    });
  }
  acc = sum;
}

template <int K, int P>
HWY_NOINLINE void grad_weight_tile(const float* x, const float* dy, int64_t rows, float* dw,
                                   int64_t panel_stride) {
  const F32 d;
  Tile<K, P> acc;
  clear(acc);
  unroll<P * K>([&](auto i) {  // read-modify-write at the end: have it near by then
    hwy::Prefetch(dw + i / K * panel_stride + i % K * kPanel);
  });
  outer_products(x, dy, kChunkRows * kPanel, rows, acc);
  unroll<P>([&](auto p) {
    unroll<K>([&](auto kk) {
      unroll<kVecs>([&](auto i) {
        float* to = dw + p * panel_stride + kk * kPanel + i * kLanes;
        hn::StoreU(hn::Add(hn::LoadU(d, to), acc.at(kk, p, i)), d, to);
      });
    });
  });
}

template <int K>
HWY_INLINE void grad_weight_panels(const float* x, const float* dy, int64_t rows, float* dw,
                                   int64_t panel_stride, int64_t panels) {
  if constexpr (kWide == 2) {
    if (panels == 2) return grad_weight_tile<K, kWide>(x, dy, rows, dw, panel_stride);
  }
  grad_weight_tile<K, 1>(x, dy, rows, dw, panel_stride);
}

HWY_INLINE void grad_weight_columns(int64_t tile_k, const float* x, const float* dy, int64_t rows,
                                    float* dw, int64_t panel_stride, int64_t panels) {
  switch (tile_k) {
    case 1:
      return grad_weight_panels<1>(x, dy, rows, dw, panel_stride, panels);
    case 2:
      return grad_weight_panels<2>(x, dy, rows, dw, panel_stride, panels);
    case 3:
      return grad_weight_panels<3>(x, dy, rows, dw, panel_stride, panels);
    case 4:
      return grad_weight_panels<4>(x, dy, rows, dw, panel_stride, panels);
    case 5:
      return grad_weight_panels<5>(x, dy, rows, dw, panel_stride, panels);
    default:
      return grad_weight_panels<6>(x, dy, rows, dw, panel_stride, panels);
  }
}

// Tile order: for each tile of k, [rows][tile width]. Copies 8 values where they exist: what is too
// much is overwritten by the next row.
void pack_x(const GradWeightJob& job, Range rows, Range k, float* out) {
  const Parts tiles = tiles_of(k.size());
  for (int64_t r = 0; r < rows.size(); ++r) {
    const float* x = job.x + (rows.begin + r) * job.ldx + k.begin;
    const bool last_row = r + 1 == rows.size();
    for (int64_t t = 0; t < tiles.count(); ++t) {
      const Range tile = tiles[t];
      float* to = out + tile.begin * rows.size() + r * tile.size();
      if (!last_row && tile.begin + 8 <= k.size()) {
        std::memcpy(to, x + tile.begin, 8 * sizeof(float));
      } else {
        std::copy_n(x + tile.begin, tile.size(), to);
      }
    }
  }
}

void pack_dy(const GradWeightJob& job, Range rows, int64_t panel, float* out) {
  const int64_t column = panel * kPanel;
  const int64_t width = std::min(kPanel, job.n - column);
  for (int64_t r = 0; r < rows.size(); ++r) {
    const float* dy = job.dy + (rows.begin + r) * job.lddy + column;
    float* to = out + r * kPanel;
    if (width == kPanel) {
      std::copy_n(dy, kPanel, to);
    } else {
      std::fill(std::copy_n(dy, width, to), to + kPanel, 0.0f);
    }
  }
}

struct GradWeightScratch {
  alignas(64) float x[kChunkRows * kBlockK];
  alignas(64) float dy[kWide * kChunkRows * kPanel];
};

// Panels of outputs times blocks of inputs, all rows.
void grad_weight_task(const GradWeightJob& job, Range panels, Range blocks) {
  static thread_local const auto scratch = std::make_unique<GradWeightScratch>();
  const int64_t panel_stride = job.k * kPanel;
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    const Range k = Parts(job.k, job.rows)[b];
    const Parts tiles = tiles_of(k.size());
    for (int64_t row = 0; row < job.num_rows; row += kChunkRows) {
      const Range rows{row, std::min(job.num_rows, row + kChunkRows)};
      pack_x(job, rows, k, scratch->x);
      for (int64_t panel = panels.begin; panel < panels.end; panel += kWide) {
        const int64_t count = std::min<int64_t>(kWide, panels.end - panel);
        for (int64_t p = 0; p < count; ++p)
          pack_dy(job, rows, panel + p, scratch->dy + p * kChunkRows * kPanel);
        float* dw = job.dw + panel * panel_stride + k.begin * kPanel;
        for (int64_t t = 0; t < tiles.count(); ++t) {
          const Range tile = tiles[t];
          grad_weight_columns(tile.size(), scratch->x + tile.begin * rows.size(), scratch->dy,
                              rows.size(), dw + tile.begin * kPanel, panel_stride, count);
        }
      }
    }
  }
}

}  // namespace
}  // namespace keel::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keel::ops {
namespace {

HWY_EXPORT(grad_weight_task);

// Packing x costs one copy a panel group; 8 panels make it small.
TaskGrid grad_weight_grid(const GradWeightJob& job, int64_t wanted) {
  TaskGrid grid{num_panels(job.n), 1, 1};
  grid.row_chunks = std::min(job.rows, ceil_div(wanted, 2));
  const int64_t groups = std::max(ceil_div(wanted, grid.row_chunks), ceil_div(grid.panels, 32));
  grid.panels_per_task = ceil_div(ceil_div(grid.panels, groups), 2) * 2;
  return grid;
}

GradWeightJob make_job(const float* x, int64_t ldx, const float* dy, int64_t lddy, int64_t m,
                       int64_t n, int64_t k, float* dw) {
  return {x, ldx, dy, lddy, m, n, k, dw, ceil_div(k, kBlockK)};
}

}  // namespace

void linear_grad_weight(const float* x, int64_t ldx, const float* dy, int64_t lddy, int64_t m,
                        int64_t n, int64_t k, float* dw) {
  if (m == 0 || n == 0 || k == 0) return;
  std::vector<WorkItem<GradWeightJob>> items(1);
  const int64_t wanted = wanted_tasks(m * k * num_panels(n) * kPanel);
  items[0].job = make_job(x, ldx, dy, lddy, m, n, k, dw);
  items[0].grid = grad_weight_grid(items[0].job, wanted);
  run_items(items, wanted == 1, HWY_DYNAMIC_DISPATCH(grad_weight_task));
}

void grouped_linear_grad_weight(std::span<const int64_t> offsets, const float* x, int64_t ldx,
                                const float* dy, int64_t lddy, int64_t n, int64_t k,
                                std::span<float* const> dw) {
  KEEL_CHECK(offsets.size() == dw.size() + 1, "{} offsets for {} experts", offsets.size(),
             dw.size());
  if (dw.empty() || offsets.back() == offsets.front()) return;
  const int64_t total_rows = offsets.back() - offsets.front();
  const int64_t wanted = wanted_tasks(total_rows * k * num_panels(n) * kPanel);
  std::vector<WorkItem<GradWeightJob>> items;
  for (size_t e = 0; e < dw.size(); ++e) {
    const int64_t rows = offsets[e + 1] - offsets[e];
    if (rows == 0) continue;
    const auto job =
        make_job(x + offsets[e] * ldx, ldx, dy + offsets[e] * lddy, lddy, rows, n, k, dw[e]);
    items.push_back({job, grad_weight_grid(job, ceil_div(wanted * rows, total_rows))});
  }
  run_items(items, wanted == 1, HWY_DYNAMIC_DISPATCH(grad_weight_task));
}

}  // namespace keel::ops
#endif  // HWY_ONCE
