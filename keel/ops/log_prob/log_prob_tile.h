// SIMD pieces of the head that work on one row of one vocabulary tile (internal). Buffers hold
// kVocabTile values; columns [width, next multiple of 16) may be overwritten.
#pragma once

#include <cstdint>

namespace keel::ops {

struct TileStats {
  float max;       // -inf: no column counts
  float sum;       // of exp(l - max)
  float weighted;  // of exp(l - max) * (l - max)
};

// Divides by the temperature in place and pads with -inf to a multiple of 16.
void scale_logits(float* logits, int64_t width, float temperature);

// Of scaled, padded logits; -inf columns do not count.
TileStats tile_stats(const float* logits, int64_t width);

// out[i] = exp(in[i] - shift), 0 for -inf; in and out hold count rounded up to 16 values.
void exp_shifted(const float* in, int64_t count, float shift, float* out);

// Gradient of d_log_prob * log_prob(target) + d_entropy * entropy by the logits before scaling.
struct RowGrad {
  float d_log_prob;
  float d_entropy;
  float lse;
  float entropy;
  float temperature;
};

// Scaled logits in, gradients out (0 where the logit is -inf); without the target's own term,
// which is d_log_prob / temperature.
void logit_grads(const RowGrad& row, int64_t width, float* logits);

}  // namespace keel::ops
