// The language-model head: log-probabilities, entropy and sampling without a [rows, vocabulary]
// tensor.
//
// The vocabulary is cut into fixed tiles of kVocabTile columns. Each tile gives (m = max, sum of
// exp(l - m), sum of exp(l - m) * (l - m)) per row: column c adds to partial sum c mod 16, and the
// 16 are added pairwise. Tiles are merged in order, in f64. Training and sampling use the same
// functions for these numbers, so the log-prob recorded when a token is sampled is, bit for bit,
// the one that training computes. Logits are f32, divided by the row's temperature before anything
// else.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "keel/ops/packed.h"

namespace keel::ops {

inline constexpr int64_t kVocabTile = 512;

// Ids that a truncated sampler kept for each row: row r owns ids[offsets[r], offsets[r+1]),
// ascending; an empty range means the whole vocabulary. Probabilities are renormalised over them.
struct KeptIds {
  std::span<const int32_t> ids;
  std::span<const int64_t> offsets;  // rows + 1, or empty: nothing was cut anywhere
};

// head: [vocab, k].  x: [m, k].  targets: [m].  temperature: [m] (> 0).
// Writes log_prob[m], entropy[m] (nats, of the distribution at that temperature, over kept ids) and
// lse[m] (log-sum-exp of the scaled logits over kept ids; the backward pass wants it). A target
// that is not among the row's kept ids has log-prob -inf.
void linear_log_prob_forward(const PackedView& head, const float* x, int64_t ldx, int64_t m,
                             const int32_t* targets, const float* temperature, const KeptIds& kept,
                             float* log_prob, float* entropy, float* lse);

// Given d loss / d log_prob and (optional, may be null) d loss / d entropy: dx: [m, k] is
// overwritten, dw (packed f32 layout of [vocab, k], may be null) is added to. Logits are computed
// again tile by tile; memory is O(row block * vocabulary block).
void linear_log_prob_backward(const PackedView& head, const float* x, int64_t ldx, int64_t m,
                              const int32_t* targets, const float* temperature, const KeptIds& kept,
                              const float* lse, const float* entropy, const float* d_log_prob,
                              const float* d_entropy, float* dx, int64_t lddx, float* dw);

struct SampleParams {
  float temperature = 1.0f;  // 0 = greedy: arg max (lowest id on ties), log-prob at temperature 1
  int32_t top_k = 0;         // 0 = off; ties with the k-th value are kept
  float top_p = 1.0f;        // 1 = off
  float min_p = 0.0f;        // 0 = off
  double uniform = 0.5;      // the row's random number, from (request seed, position)
};

struct SampledToken {
  int32_t id = 0;
  float log_prob = 0;  // of the distribution sampled from (after temperature and truncation)
  float entropy = 0;
  std::vector<int32_t> kept;  // ascending; empty when nothing was cut
};

// Inverse CDF over the tiles, then inside one tile. Order of truncation is temperature, top-k,
// top-p, min-p (as transformers); of equal values the lower ids survive top-p. One row of
// logits is held for each row that is truncated, none for the others.
void linear_sample(const PackedView& head, const float* x, int64_t ldx,
                   std::span<const SampleParams> params, std::span<SampledToken> out);

}  // namespace keel::ops
