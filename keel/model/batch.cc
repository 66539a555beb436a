#include "keel/model/batch.h"

#include "keel/base/error.h"
#include "keel/ops/attention/kv_layout.h"

namespace keel::model {
namespace {

class Builder {
 public:
  // Appends a sequence of tokens at positions first, first + 1, ...; returns its index.
  int32_t add(std::span<const int32_t> tokens, int32_t prefix, int32_t first) {
    const auto row = static_cast<int64_t>(batch_.tokens.size());
    sequences_.push_back({row, static_cast<int32_t>(tokens.size()), prefix, first});
    batch_.tokens.insert(batch_.tokens.end(), tokens.begin(), tokens.end());
    for (size_t i = 0; i < tokens.size(); ++i)
      positions_.push_back(first + static_cast<int32_t>(i));
    return static_cast<int32_t>(sequences_.size()) - 1;
  }

  // The answer's tokens are predicted by `before` (the prompt's last row) and the answer's own
  // rows.
  void add_targets(std::span<const int32_t> answer, int64_t before, int64_t first_row) {
    for (size_t i = 0; i < answer.size(); ++i) {
      batch_.rows.push_back(i == 0 ? before : first_row + static_cast<int64_t>(i) - 1);
      batch_.targets.push_back(answer[i]);
    }
  }

  int64_t next_row() const { return static_cast<int64_t>(batch_.tokens.size()); }

  PackedBatch finish() {
    ops::KvLayout layout = ops::make_kv_layout(sequences_);
    auto plan = std::make_shared<ops::AttentionPlan>();
    plan->positions = std::move(positions_);
    plan->slots = std::move(layout.slots);
    plan->block_ids = std::move(layout.block_ids);  // keeps its storage: sequences stay valid
    plan->sequences = std::move(layout.sequences);
    plan->num_blocks = layout.num_blocks;
    for (const int32_t p : plan->positions)
      batch_.max_position = std::max<int64_t>(batch_.max_position, p);
    batch_.plan = std::move(plan);
    return std::move(batch_);
  }

 private:
  PackedBatch batch_;
  std::vector<ops::PackedSequence> sequences_;
  std::vector<int32_t> positions_;
};

}  // namespace

PackedBatch pack(std::span<const Continuations> groups, bool shared_prefix) {
  Builder builder;
  for (const Continuations& g : groups) {
    KEEL_CHECK(!g.prompt.empty(), "a prompt without tokens");
    const auto prompt_size = static_cast<int32_t>(g.prompt.size());
    int32_t prompt = -1;
    int64_t prompt_end = 0;
    for (const auto& answer : g.answers) {
      KEEL_CHECK(!answer.empty(), "an answer without tokens");
      if (prompt < 0 || !shared_prefix) {
        prompt = builder.add(g.prompt, -1, 0);
        prompt_end = builder.next_row() - 1;
      }
      const int64_t first_row = builder.next_row();
      if (answer.size() > 1) builder.add(answer.first(answer.size() - 1), prompt, prompt_size);
      builder.add_targets(answer, prompt_end, first_row);
    }
  }
  return builder.finish();
}

}  // namespace keel::model
