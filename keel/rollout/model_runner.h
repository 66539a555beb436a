// Runs engine steps on a model with a paged KV cache. Uses torch; engine.h stays free of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "keel/model/model.h"
#include "keel/rollout/kv_size.h"
#include "keel/rollout/runner.h"

namespace keel::rollout {

class ModelRunner : public Runner {
 public:
  // The model outlives the runner and is read only; its version() is the weight version.
  // wanted_tokens: KV tokens that the running sequences need at most (max_seqs times the longest
  // prompt + answer). numerics_id: what samples record.
  ModelRunner(model::Model& model, const KvConfig& config, int64_t wanted_tokens,
              std::string numerics_id);

  void run(const RunnerBatch& batch, std::span<ops::SampledToken> out) override;
  int32_t num_blocks() const override { return cache_.num_blocks(); }
  int32_t max_positions() const override;
  int32_t vocab_size() const override;
  int64_t weight_version() const override { return model_.version(); }
  std::string numerics_id() const override { return numerics_id_; }

 private:
  void copy_blocks(std::span<const sched::BlockCopy> copies);
  const float* rows_to_sample(const float* hidden, int64_t num_rows, const RunnerBatch& batch);

  model::Model& model_;
  model::KvCache cache_;
  std::string numerics_id_;
  std::shared_ptr<ops::AttentionPlan> plan_;
  std::vector<float> gathered_;
};

}  // namespace keel::rollout
