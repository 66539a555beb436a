// Packed batches for training and log-prob passes: sequences one after the other, no padding.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "keel/ops/functions.h"

namespace keel::model {

// A prompt and the answers that continue it. The log-probs wanted are those of the answers' tokens.
struct Continuations {
  std::span<const int32_t> prompt;
  std::vector<std::span<const int32_t>> answers;
};

struct PackedBatch {
  std::vector<int32_t> tokens;  // [T]
  std::shared_ptr<const ops::AttentionPlan> plan;
  // One entry for each answer token, answers in the order given: the row whose hidden state
  // predicts it.
  std::vector<int64_t> rows;
  std::vector<int32_t> targets;
  int64_t max_position = 0;
};

// shared_prefix: a prompt is computed once and its answers attend to it; else each answer gets a
// copy. Equal bits either way. The last token of an answer is only a target and is not computed.
PackedBatch pack(std::span<const Continuations> groups, bool shared_prefix);

}  // namespace keel::model
