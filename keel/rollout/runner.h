// What the engine asks of a model: one forward step over rows of many sequences on a paged KV
// cache. Implemented by ModelRunner; tests implement it with a pseudo-model.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "keel/ops/attention/attention_kernels.h"
#include "keel/ops/log_prob/log_prob_kernels.h"
#include "keel/sched/scheduler.h"

namespace keel::rollout {

// Views into the engine's buffers, valid during run().
struct RunnerBatch {
  std::span<const sched::BlockCopy> copies;           // done first, in order
  std::span<const int32_t> tokens;                    // [rows]
  std::span<const int32_t> positions;                 // [rows]
  std::span<const ops::KvSlot> slots;                 // [rows] where the K and V of row i go
  std::span<const ops::AttentionSequence> sequences;  // cover the rows in order
  std::span<const int32_t> sample_rows;               // [samples] any order, may repeat
  std::span<const ops::SampleParams> sample_params;   // [samples]
};

class Runner {
 public:
  virtual ~Runner() = default;
  // Computes all rows and writes out[i] for sample_rows[i]; out has the size of sample_rows.
  virtual void run(const RunnerBatch& batch, std::span<ops::SampledToken> out) = 0;
  virtual int32_t num_blocks() const = 0;  // with the null block
  virtual int32_t max_positions() const = 0;
  virtual int32_t vocab_size() const = 0;
  // Changes whenever the weights do; KV of another version is never used.
  virtual int64_t weight_version() const = 0;
  virtual std::string numerics_id() const = 0;
};

}  // namespace keel::rollout
