#include "keel/ops/log_prob/head_pass.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "keel/base/thread_pool.h"
#include "keel/ops/linear/linear_kernels.h"
#include "keel/ops/linear/linear_split.h"

namespace keel::ops {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
constexpr int64_t kPassRows = 96;  // 96 x 512 logits: 192 KiB a thread

bool any_kept(const KeptIds& kept, Range rows, int64_t tile) {
  const auto first = static_cast<int32_t>(tile * kVocabTile);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const auto ids = kept_of(kept, r);
    if (ids.empty()) return true;
    const auto at = std::lower_bound(ids.begin(), ids.end(), first);
    if (at != ids.end() && *at < first + kVocabTile) return true;
  }
  return false;
}

}  // namespace

HeadStats::HeadStats(int64_t rows, int64_t vocab)
    : num_tiles_(ceil_div(vocab, kVocabTile)),
      stride_(ceil_div(num_tiles_, 16) * 16),
      max_(rows * stride_, kMinusInf),
      sum_(rows * stride_),
      weighted_(rows * stride_) {}

void HeadStats::set(int64_t row, int64_t tile, const TileStats& stats) {
  max_[row * stride_ + tile] = stats.max;
  sum_[row * stride_ + tile] = stats.sum;
  weighted_[row * stride_ + tile] = stats.weighted;
}

HeadStats::Row HeadStats::merge(int64_t row, std::vector<float>* weights) const {
  static thread_local std::vector<float> scale;
  scale.resize(stride_);
  if (weights != nullptr) weights->resize(stride_);
  const float* max = &max_[row * stride_];
  const float* sum = &sum_[row * stride_];
  const float* weighted = &weighted_[row * stride_];
  Row out;
  out.max = *std::max_element(max, max + num_tiles_);
  exp_shifted(max, stride_, out.max, scale.data());
  for (int64_t t = 0; t < num_tiles_; ++t) {
    const double share = double{sum[t]} * scale[t];
    if (weights != nullptr) (*weights)[t] = static_cast<float>(share);
    if (sum[t] == 0) continue;  // nothing kept here: max is -inf
    out.sum += share;
    out.weighted += double{weighted[t]} * scale[t] + share * (double{max[t]} - out.max);
  }
  return out;
}

float HeadStats::Row::log_prob(float logit) const {
  return static_cast<float>(double{logit} - max - std::log(sum));
}
float HeadStats::Row::lse() const { return static_cast<float>(max + std::log(sum)); }
float HeadStats::Row::entropy() const { return static_cast<float>(std::log(sum) - weighted / sum); }

std::span<const int32_t> kept_of(const KeptIds& kept, int64_t row) {
  if (kept.offsets.empty()) return {};
  return kept.ids.subspan(kept.offsets[row], kept.offsets[row + 1] - kept.offsets[row]);
}

bool mask_tile(std::span<const int32_t> kept, int64_t tile, int64_t width, float* logits) {
  if (kept.empty()) return true;
  const auto first = static_cast<int32_t>(tile * kVocabTile);
  auto id = std::lower_bound(kept.begin(), kept.end(), first);
  bool any = false;
  for (int64_t c = 0; c < width; ++c) {
    if (id != kept.end() && *id == first + c) {
      ++id;
      any = true;
    } else {
      logits[c] = kMinusInf;
    }
  }
  return any;
}

void visit_tiles(const PackedView& head, const float* x, int64_t ldx, int64_t rows,
                 int64_t tile_begin, int64_t tile_end, const float* temperature,
                 const KeptIds& kept, TileVisitor visit) {
  const int64_t blocks = ceil_div(rows, kPassRows);
  compute_pool().parallel_for(blocks * (tile_end - tile_begin), [&](int64_t i, int) {
    static thread_local std::vector<float> buffer(kPassRows * kVocabTile);
    const int64_t tile = tile_begin + i / blocks;
    const int64_t width = tile_width(head.n, tile);
    const Range block = Parts(rows, blocks)[i % blocks];
    const bool needed = any_kept(kept, block, tile);
    if (needed)
      linear_forward(sub_view(head, tile * kVocabTile, width), x + block.begin * ldx, ldx,
                     block.size(), buffer.data(), kVocabTile);
    for (int64_t r = 0; r < block.size(); ++r) {
      float* logits = &buffer[r * kVocabTile];
      const int64_t row = block.begin + r;
      if (needed) scale_logits(logits, width, temperature[row]);
      visit(row, tile, logits, needed && mask_tile(kept_of(kept, row), tile, width, logits));
    }
  });
}

void row_tile_logits(const PackedView& head, const float* x, int64_t tile, float temperature,
                     float* logits) {
  const int64_t width = tile_width(head.n, tile);
  linear_forward(sub_view(head, tile * kVocabTile, width), x, head.k, 1, logits, kVocabTile);
  scale_logits(logits, width, temperature);
}

}  // namespace keel::ops
