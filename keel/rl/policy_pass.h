// Forward and backward passes of a model over sampled answers: micro-batches under a token cap,
// prompts of a group computed once, log-probs in the order of the answers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "keel/model/model.h"

namespace keel::rl {

// An answer with its prompt. Spans point into whoever owns the samples.
struct PassItem {
  std::span<const int32_t> prompt;
  std::span<const int32_t> answer;  // not empty
  int64_t group = -1;               // >= 0: items of one group have equal prompts
  float temperature = 1;  // log-probs are of the distribution at this temperature (0 counts as 1)
  std::span<const int32_t> kept_ids;  // rollout::Sample's, empty when nothing was cut
  std::span<const int64_t> kept_offsets;
};

struct PassOptions {
  int64_t micro_batch_tokens = 16384;
  bool shared_prefix = true;
};

// Answer tokens of items, one after the other.
struct TokenValues {
  std::vector<int64_t> offsets;  // items + 1
  std::vector<float> log_prob;
  std::vector<float> entropy;
};

// No gradients are kept.
TokenValues compute_log_probs(model::Model& model, std::span<const PassItem> items,
                              const PassOptions& options);

// A micro-batch on its way back: values of its items (in the order of `items`) go in, their
// gradients come out.
struct MicroBatchGrads {
  std::vector<double> d_log_prob, d_entropy;  // d_entropy may stay empty
};
using MicroBatchLoss =
    std::function<MicroBatchGrads(std::span<const int32_t> items, const TokenValues& values)>;

// For each micro-batch: forward, `loss`, backward; gradients add up in the parameters, always in
// the same order. Returns the number of rows that went through the model.
int64_t accumulate_gradients(model::Model& model, std::span<const PassItem> items,
                             const PassOptions& options, const MicroBatchLoss& loss);

}  // namespace keel::rl
