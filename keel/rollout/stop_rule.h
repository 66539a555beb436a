// Decides after each sampled token whether an answer ends: end of sequence, stop ids, stop strings
// (which may span tokens), length; in that order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "keel/rollout/engine.h"
#include "keel/rollout/sample.h"

namespace keel::rollout {

class StopRule {
 public:
  StopRule() = default;
  // params and eos_ids outlive the rule. text may be null when there are no stop strings.
  StopRule(const SamplingParams& params, std::span<const int32_t> eos_ids,
           std::unique_ptr<TextStream> text);

  // num_generated counts `token`.
  std::optional<StopReason> after(int32_t token, int32_t num_generated);

 private:
  bool matches_string(int32_t token);

  const SamplingParams* params_ = nullptr;
  std::span<const int32_t> eos_ids_;
  std::unique_ptr<TextStream> text_;
  size_t longest_ = 0;  // bytes of the longest stop string
  std::string tail_;    // last longest_ - 1 bytes of the answer
};

}  // namespace keel::rollout
