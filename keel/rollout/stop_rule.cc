#include "keel/rollout/stop_rule.h"

#include <algorithm>

namespace keel::rollout {

StopRule::StopRule(const SamplingParams& params, std::span<const int32_t> eos_ids,
                   std::unique_ptr<TextStream> text)
    : params_(&params), text_(std::move(text)) {
  if (!params.ignore_eos) eos_ids_ = eos_ids;
  for (const auto& s : params.stop_strings) longest_ = std::max(longest_, s.size());
}

std::optional<StopReason> StopRule::after(int32_t token, int32_t num_generated) {
  const auto holds = [token](std::span<const int32_t> ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  if (holds(eos_ids_)) return StopReason::kEos;
  if (holds(params_->stop_ids)) return StopReason::kStop;
  if (longest_ > 0 && matches_string(token)) return StopReason::kStop;
  if (num_generated >= params_->max_new_tokens) return StopReason::kLength;
  return std::nullopt;
}

bool StopRule::matches_string(int32_t token) {
  tail_ += text_->push(token);
  for (const auto& s : params_->stop_strings) {
    if (tail_.find(s) != std::string::npos) return true;
  }
  if (tail_.size() >= longest_) tail_.erase(0, tail_.size() - (longest_ - 1));
  return false;
}

}  // namespace keel::rollout
