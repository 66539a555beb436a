// Whole-model measurements that stand beside the peers' scripts: generation, training, one GRPO
// iteration, long contexts. Random ids, end-of-sequence ignored. Each returns one JSON object per
// result; times are medians.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "keel/base/json.h"
#include "keel/ops/packed.h"

namespace keel::rl {

struct BenchOptions {
  std::string model;  // folder
  ops::DType dtype = ops::DType::kF32;
  int64_t repeats = 5;
};

// prompt ids are prefilled, then new_tokens are decoded, for `batch` sequences at once.
OrderedJson bench_generate(const BenchOptions& options, int64_t batch, int64_t prompt,
                           int64_t new_tokens);

struct TrainBench {
  int64_t tokens = 512;   // of one sequence, with a loss on all next tokens
  bool entropy = false;   // also the gradient of the entropy
  bool optimizer = true;  // AdamW and its moments; without: the memory of loss and backward alone
};

// Forward, backward and AdamW.
OrderedJson bench_train(const BenchOptions& options, const TrainBench& work);

// prompts x samples answers of new_tokens, rewards (share of even ids), one update on all of them.
OrderedJson bench_grpo(const BenchOptions& options, int64_t prompts, int64_t samples,
                       int64_t prompt, int64_t new_tokens);

// FMA peak and DRAM read of this machine now.
OrderedJson bench_limits();

}  // namespace keel::rl
