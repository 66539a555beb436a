#include <algorithm>
#include <limits>
#include <vector>

#include "keel/base/error.h"
#include "keel/base/thread_pool.h"
#include "keel/ops/linear/linear_kernels.h"
#include "keel/ops/linear/linear_split.h"
#include "keel/ops/log_prob/head_pass.h"
#include "keel/ops/log_prob/log_prob_kernels.h"

namespace keel::ops {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
constexpr int64_t kForwardRows = 2048;   // rows whose tile statistics are held at once
constexpr int64_t kBackwardRows = 1024;  // x kBackwardVocab gradients: 8 MiB
constexpr int64_t kBackwardVocab = 4 * kVocabTile;
constexpr int64_t kMergeWork = 16 << 10;  // tiles worth a second parallel region

void check_targets(const PackedView& head, int64_t m, const int32_t* targets, const KeptIds& kept) {
  for (int64_t r = 0; r < m; ++r)
    KEEL_CHECK(targets[r] >= 0 && targets[r] < head.n, "target {} of {}", targets[r], head.n);
  KEEL_CHECK(kept.offsets.empty() || std::ssize(kept.offsets) == m + 1, "{} offsets for {} rows",
             kept.offsets.size(), m);
}

// The rows [begin, ...) of kept ids.
KeptIds from_row(const KeptIds& kept, int64_t begin, int64_t rows) {
  if (kept.offsets.empty()) return kept;
  return {kept.ids, kept.offsets.subspan(begin, rows + 1)};
}

}  // namespace

void linear_log_prob_forward(const PackedView& head, const float* x, int64_t ldx, int64_t m,
                             const int32_t* targets, const float* temperature, const KeptIds& kept,
                             float* log_prob, float* entropy, float* lse) {
  check_targets(head, m, targets, kept);
  for (int64_t begin = 0; begin < m; begin += kForwardRows) {
    const int64_t rows = std::min(kForwardRows, m - begin);
    HeadStats stats(rows, head.n);
    visit_tiles(head, x + begin * ldx, ldx, rows, 0, stats.num_tiles(), temperature + begin,
                from_row(kept, begin, rows),
                [&](int64_t row, int64_t tile, const float* logits, bool any) {
                  const int64_t width = tile_width(head.n, tile);
                  if (any) stats.set(row, tile, tile_stats(logits, width));
                  const int64_t target = targets[begin + row];
                  if (target / kVocabTile == tile)  // until merged, log_prob holds the logit
                    log_prob[begin + row] = any ? logits[target % kVocabTile] : kMinusInf;
                });
    const int64_t parts = rows * stats.num_tiles() < kMergeWork ? 1 : ceil_div(rows, 64);
    compute_pool().parallel_for(parts, [&](int64_t p, int) {
      const Range range = Parts(rows, parts)[p];
      for (int64_t r = range.begin; r < range.end; ++r) {
        const HeadStats::Row row = stats.merge(r);
        log_prob[begin + r] = row.log_prob(log_prob[begin + r]);
        entropy[begin + r] = row.entropy();
        lse[begin + r] = row.lse();
      }
    });
  }
}

void linear_log_prob_backward(const PackedView& head, const float* x, int64_t ldx, int64_t m,
                              const int32_t* targets, const float* temperature, const KeptIds& kept,
                              const float* lse, const float* entropy, const float* d_log_prob,
                              const float* d_entropy, float* dx, int64_t lddx, float* dw) {
  check_targets(head, m, targets, kept);
  std::vector<float> grads(std::min(m, kBackwardRows) * std::min(kBackwardVocab, head.n));
  for (int64_t begin = 0; begin < m; begin += kBackwardRows) {
    const int64_t rows = std::min(kBackwardRows, m - begin);
    const KeptIds rows_kept = from_row(kept, begin, rows);
    for (int64_t first = 0; first < head.n; first += kBackwardVocab) {
      const int64_t width = std::min(kBackwardVocab, head.n - first);
      const PackedView block = sub_view(head, first, width);
      const auto gradient = [&](int64_t row, int64_t tile, float* logits, bool any) {
        const int64_t r = begin + row;
        const int64_t columns = tile_width(head.n, tile);
        float* out = &grads[row * width + tile * kVocabTile - first];
        if (!any) {
          std::fill_n(out, columns, 0.0f);
          return;
        }
        const int64_t target = targets[r] - tile * kVocabTile;
        const bool has_target = target >= 0 && target < columns && logits[target] != kMinusInf;
        logit_grads({d_log_prob[r], d_entropy == nullptr ? 0.0f : d_entropy[r], lse[r], entropy[r],
                     temperature[r]},
                    columns, logits);
        if (has_target) logits[target] += d_log_prob[r] / temperature[r];
        std::copy_n(logits, columns, out);
      };
      visit_tiles(head, x + begin * ldx, ldx, rows, first / kVocabTile,
                  ceil_div(first + width, kVocabTile), temperature + begin, rows_kept, gradient);
      linear_grad_input(block, grads.data(), width, rows, dx + begin * lddx, lddx, first != 0);
      if (dw != nullptr)
        linear_grad_weight(x + begin * ldx, ldx, grads.data(), width, rows, width, head.k,
                           dw + first * head.k);
    }
  }
}

}  // namespace keel::ops
