#include "keel/rollout/model_runner.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>

namespace keel::rollout {

ModelRunner::ModelRunner(model::Model& model, const KvConfig& config, int64_t wanted_tokens,
                         std::string numerics_id)
    : model_(model),
      cache_(model.spec(), model.dtype(),
             choose_kv_blocks(config, wanted_tokens,
                              model::KvCache::bytes_per_block(model.spec(), model.dtype()),
                              available_memory_bytes())),
      numerics_id_(std::move(numerics_id)),
      plan_(std::make_shared<ops::AttentionPlan>()) {
  const int64_t held = int64_t{cache_.num_blocks()} * ops::kKvBlock;
  model_.reserve_positions(std::min(model.spec().max_positions, held));
}

int32_t ModelRunner::max_positions() const {
  return static_cast<int32_t>(model_.spec().max_positions);
}

int32_t ModelRunner::vocab_size() const { return static_cast<int32_t>(model_.spec().vocab); }

void ModelRunner::run(const RunnerBatch& batch, std::span<ops::SampledToken> out) {
  const c10::InferenceMode no_autograd;
  copy_blocks(batch.copies);
  plan_->positions.assign(batch.positions.begin(), batch.positions.end());
  plan_->slots.assign(batch.slots.begin(), batch.slots.end());
  plan_->sequences.assign(batch.sequences.begin(), batch.sequences.end());
  const auto hidden = model_.forward(batch.tokens, {plan_, &cache_});
  if (out.empty()) return;
  const auto* x = rows_to_sample(hidden.const_data_ptr<float>(), hidden.size(0), batch);
  ops::linear_sample(model_.head().view(), x, model_.spec().hidden, batch.sample_params, out);
}

void ModelRunner::copy_blocks(std::span<const sched::BlockCopy> copies) {
  if (copies.empty()) return;
  const auto shape = model_.attention_shape();
  for (int64_t layer = 0; layer < model_.spec().layers; ++layer) {
    for (const auto& c : copies) ops::kv_copy_block(shape, cache_.pool(layer), c.from, c.to);
  }
}

// The hidden rows in sample order: in pure decoding they lie there already.
const float* ModelRunner::rows_to_sample(const float* hidden, int64_t num_rows,
                                         const RunnerBatch& batch) {
  const auto& rows = batch.sample_rows;
  bool in_place = std::ssize(rows) == num_rows;
  for (size_t i = 0; in_place && i < rows.size(); ++i) {
    in_place = rows[i] == static_cast<int32_t>(i);
  }
  if (in_place) return hidden;
  const int64_t width = model_.spec().hidden;
  gathered_.resize(rows.size() * width);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::copy_n(hidden + rows[i] * width, width, gathered_.data() + i * width);
  }
  return gathered_.data();
}

}  // namespace keel::rollout
