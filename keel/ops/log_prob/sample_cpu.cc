#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "keel/base/error.h"
#include "keel/base/thread_pool.h"
#include "keel/ops/log_prob/head_pass.h"
#include "keel/ops/log_prob/log_prob_kernels.h"
#include "keel/ops/log_prob/truncation.h"

namespace keel::ops {
namespace {

bool truncates(const SampleParams& p) {
  return p.temperature > 0 && (p.top_k > 0 || p.top_p < 1 || p.min_p > 0);
}

struct SamplePass {
  const PackedView& head;
  const float* x;
  int64_t ldx;
  std::span<const SampleParams> params;
  std::vector<float> temperature;
  std::vector<int64_t> logits_row;  // of `logits`, -1: the row is not truncated
  std::vector<float> logits;        // [truncated rows, vocab]
  HeadStats stats;

  // Scaled logits of a tile, masked by what the row keeps.
  void tile_logits(int64_t row, int64_t tile, std::span<const int32_t> kept, float* out) const {
    row_tile_logits(head, x + row * ldx, tile, temperature[row], out);
    mask_tile(kept, tile, tile_width(head.n, tile), out);
  }
};

SamplePass run_pass(const PackedView& head, const float* x, int64_t ldx,
                    std::span<const SampleParams> params) {
  const auto rows = std::ssize(params);
  SamplePass pass{head, x, ldx, params, {}, {}, {}, HeadStats(rows, head.n)};
  int64_t truncated = 0;
  for (const SampleParams& p : params) {
    pass.temperature.push_back(p.temperature > 0 ? p.temperature : 1.0f);
    pass.logits_row.push_back(truncates(p) ? truncated++ : -1);
  }
  pass.logits.resize(truncated * head.n);
  visit_tiles(head, x, ldx, rows, 0, pass.stats.num_tiles(), pass.temperature.data(), {},
              [&](int64_t row, int64_t tile, const float* logits, bool) {
                const int64_t width = tile_width(head.n, tile);
                pass.stats.set(row, tile, tile_stats(logits, width));
                if (const int64_t r = pass.logits_row[row]; r >= 0)
                  std::copy_n(logits, width, &pass.logits[r * head.n + tile * kVocabTile]);
              });
  return pass;
}

// Ids kept by a truncated row (empty: all); its statistics become those over the kept ids.
std::vector<int32_t> truncate_row(SamplePass& pass, int64_t row) {
  const SampleParams& p = pass.params[row];
  const std::span<const float> logits(&pass.logits[pass.logits_row[row] * pass.head.n],
                                      static_cast<size_t>(pass.head.n));
  const float* max = pass.stats.max(row);
  auto kept = kept_ids(logits, *std::max_element(max, max + pass.stats.num_tiles()), p.top_k,
                       p.top_p, p.min_p);
  if (kept.empty()) return kept;
  alignas(64) float tile_values[kVocabTile];
  for (int64_t t = 0; t < pass.stats.num_tiles(); ++t) {
    const int64_t width = tile_width(pass.head.n, t);
    std::copy_n(&logits[t * kVocabTile], width, tile_values);
    scale_logits(tile_values, width, 1.0f);  // pads
    const bool any = mask_tile(kept, t, width, tile_values);
    pass.stats.set(row, t,
                   any ? tile_stats(tile_values, width)
                       : TileStats{-std::numeric_limits<float>::infinity(), 0, 0});
  }
  return kept;
}

// First column with the row's maximum.
SampledToken pick_greedy(const SamplePass& pass, int64_t row, const HeadStats::Row& merged) {
  const float* max = pass.stats.max(row);
  const int64_t tile = std::find(max, max + pass.stats.num_tiles(), merged.max) - max;
  alignas(64) float logits[kVocabTile];
  pass.tile_logits(row, tile, {}, logits);
  const int64_t column =
      std::find(logits, logits + tile_width(pass.head.n, tile), merged.max) - logits;
  SampledToken token;
  token.id = static_cast<int32_t>(tile * kVocabTile + column);
  token.log_prob = merged.log_prob(merged.max);
  return token;
}

// Inverse CDF: the tile by its share of the sum, then the column.
SampledToken pick_random(const SamplePass& pass, int64_t row, const HeadStats::Row& merged,
                         const std::vector<float>& weights, std::span<const int32_t> kept) {
  const int64_t tiles = pass.stats.num_tiles();
  double left = pass.params[row].uniform * merged.sum;
  int64_t tile = -1;
  for (int64_t t = 0; t < tiles; ++t) {
    if (weights[t] == 0) continue;
    if (tile >= 0) left -= weights[tile];
    tile = t;
    if (left < weights[t]) break;
  }
  alignas(64) float logits[kVocabTile];
  alignas(64) float p[kVocabTile];
  pass.tile_logits(row, tile, kept, logits);
  const int64_t width = tile_width(pass.head.n, tile);
  exp_shifted(logits, width, merged.max, p);
  int64_t column = -1;
  for (int64_t c = 0; c < width; ++c) {
    if (p[c] == 0) continue;
    column = c;
    if (left < p[c]) break;
    left -= p[c];
  }
  SampledToken token;
  token.id = static_cast<int32_t>(tile * kVocabTile + column);
  token.log_prob = merged.log_prob(logits[column]);
  return token;
}

}  // namespace

void linear_sample(const PackedView& head, const float* x, int64_t ldx,
                   std::span<const SampleParams> params, std::span<SampledToken> out) {
  KEEL_CHECK(params.size() == out.size(), "{} params, {} tokens", params.size(), out.size());
  if (params.empty()) return;
  SamplePass pass = run_pass(head, x, ldx, params);
  const auto finish = [&](int64_t row, int) {
    std::vector<int32_t> kept;
    if (pass.logits_row[row] >= 0) kept = truncate_row(pass, row);
    std::vector<float> weights;
    const HeadStats::Row merged = pass.stats.merge(row, &weights);
    KEEL_REQUIRE(merged.sum > 0 && std::isfinite(merged.sum),
                 "[sample] expected finite logits, got NaN or infinity; try other weights");
    out[row] = params[row].temperature > 0 ? pick_random(pass, row, merged, weights, kept)
                                           : pick_greedy(pass, row, merged);
    out[row].entropy = merged.entropy();
    out[row].kept = std::move(kept);
  };
  compute_pool().parallel_for(std::ssize(params), finish);
}

}  // namespace keel::ops
