// Test double for the model: a pseudo-model whose logits depend on every earlier token, read
// through its own paged storage, so that a wrong block table, slot or copy changes the samples.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "keel/base/error.h"
#include "keel/base/rng.h"
#include "keel/rollout/runner.h"
#include "keel/sched/paged_oracle.h"

namespace keel::rollout::test {

class FakeRunner : public Runner {
 public:
  static constexpr int32_t kVocab = 24;

  explicit FakeRunner(int32_t num_blocks) : num_blocks_(num_blocks), slots_(num_blocks) {}

  void run(const RunnerBatch& batch, std::span<ops::SampledToken> out) override {
    for (const auto& c : batch.copies) slots_.copy(c);
    hidden_.clear();
    for (const auto& s : batch.sequences) {
      for (int32_t i = 0; i < s.num_rows; ++i) {
        const int64_t row = s.row + i;
        const int32_t position = s.first_position + i;
        const auto& slot = batch.slots[row];
        KEEL_CHECK(slot.row == row && slot.block == s.blocks[position / ops::kKvBlock] &&
                       slot.block != sched::kNullBlock && slot.slot == position % ops::kKvBlock &&
                       batch.positions[row] == position,
                   "row {} has a wrong slot", row);
        hidden_.push_back(
            slots_.write(mix_key(5, weight_version_), s.blocks, position, batch.tokens[row]));
      }
    }
    for (size_t i = 0; i < out.size(); ++i) {
      sample(hidden_[batch.sample_rows[i]], batch.sample_params[i], out[i]);
    }
    if (after_run) after_run(batch);
  }

  int32_t num_blocks() const override { return num_blocks_; }
  int32_t max_positions() const override { return 1000; }
  int32_t vocab_size() const override { return kVocab; }
  int64_t weight_version() const override { return weight_version_; }
  std::string numerics_id() const override { return "fake-1"; }

  void set_weight_version(int64_t version) { weight_version_ = version; }
  std::function<void(const RunnerBatch&)> after_run;

 private:
  // Softmax over the top_k logits at the row's temperature, inverse CDF.
  static void sample(uint64_t hidden, const ops::SampleParams& params, ops::SampledToken& out) {
    std::vector<std::pair<double, int32_t>> logits;
    for (int32_t v = 0; v < kVocab; ++v) {
      logits.emplace_back(4 * uniform(hidden, static_cast<uint64_t>(v)) / params.temperature, v);
    }
    out.kept.clear();
    if (params.top_k > 0) {
      std::sort(logits.rbegin(), logits.rend());
      logits.resize(params.top_k);
      std::sort(logits.begin(), logits.end(), [](auto x, auto y) { return x.second < y.second; });
      for (const auto& [l, v] : logits) out.kept.push_back(v);
    }
    double sum = 0;
    for (const auto& [l, v] : logits) sum += std::exp(l);
    double left = params.uniform * sum;
    double entropy = 0;
    out.id = -1;
    for (const auto& [l, v] : logits) {
      entropy -= std::exp(l) / sum * (l - std::log(sum));
      left -= std::exp(l);
      if (out.id >= 0 || left > 0) continue;
      out.id = v;
      out.log_prob = static_cast<float>(l - std::log(sum));
    }
    out.entropy = static_cast<float>(entropy);
  }

  int32_t num_blocks_;
  int64_t weight_version_ = 0;
  sched::test::PagedOracle slots_;
  std::vector<uint64_t> hidden_;
};

}  // namespace keel::rollout::test
