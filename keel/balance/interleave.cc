#include "keel/balance/interleave.h"

#include <algorithm>

#include "keel/base/error.h"

namespace keel::balance {

InterleavePlan interleave(int32_t num_prompts, int32_t samples_per_prompt, int32_t num_ranks) {
  KEEL_REQUIRE(num_prompts >= 0 && samples_per_prompt >= 0 && num_ranks >= 1,
               "[balance.interleave] expected counts >= 0 and num_ranks >= 1, got {} prompts, {} "
               "samples, {} ranks",
               num_prompts, samples_per_prompt, num_ranks);
  const int64_t total = static_cast<int64_t>(num_prompts) * samples_per_prompt;
  KEEL_REQUIRE(total < (int64_t{1} << 31), "[balance.interleave] expected < 2^31 samples, got {}",
               total);
  InterleavePlan plan;
  plan.order.reserve(total);
  plan.restore.resize(total);
  for (int32_t s = 0; s < samples_per_prompt; ++s) {
    for (int32_t p = 0; p < num_prompts; ++p) {
      const int32_t place = p * samples_per_prompt + s;
      plan.restore[place] = static_cast<int32_t>(plan.order.size());
      plan.order.push_back(place);
    }
  }
  for (int64_t r = 0; r <= num_ranks; ++r) {
    const int64_t larger = std::min<int64_t>(r, total % num_ranks);
    plan.rank_begin.push_back(static_cast<int32_t>(r * (total / num_ranks) + larger));
  }
  return plan;
}

std::string validate(const InterleavePlan& plan) {
  const auto n = static_cast<int32_t>(plan.order.size());
  if (std::ssize(plan.restore) != n) {
    return fmt::format("{} in order, {} in restore", n, plan.restore.size());
  }
  for (int32_t k = 0; k < n; ++k) {
    const int32_t i = plan.order[k];
    if (i < 0 || i >= n || plan.restore[i] != k) {
      return fmt::format("restore does not undo order at {}", k);
    }
  }
  if (plan.rank_begin.empty() || plan.rank_begin.front() != 0 || plan.rank_begin.back() != n) {
    return fmt::format("chunks do not cover {} samples", n);
  }
  for (size_t r = 1; r < plan.rank_begin.size(); ++r) {
    if (plan.rank_begin[r] < plan.rank_begin[r - 1]) {
      return fmt::format("chunk {} has negative size", r - 1);
    }
  }
  return "";
}

}  // namespace keel::balance
