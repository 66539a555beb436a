#include "keel/rl/step_metrics.h"

#include <cmath>

#include "keel/observe/metric_names.h"
#include "keel/rl/advantages.h"

namespace keel::rl {
namespace {

// One row of doubles for each answer, all ranks, in rank order.
struct Columns {
  std::vector<double> score, reward, advantage, answer, prompt, group, clipped, aborted;
};

Columns gather(parallel::Group& group, std::span<const Experience> batch, int64_t max_new_tokens) {
  std::vector<double> own;
  for (const Experience& e : batch) {
    const bool cut = e.sample.stop_reason == rollout::StopReason::kLength &&
                     e.num_answer_tokens() >= max_new_tokens;
    own.insert(own.end(),
               {e.score.value, e.reward, e.advantage, static_cast<double>(e.num_answer_tokens()),
                static_cast<double>(e.sample.num_prompt), static_cast<double>(e.group),
                cut ? 1.0 : 0.0, e.sample.stop_reason == rollout::StopReason::kAbort ? 1.0 : 0.0});
  }
  Columns c;
  std::vector<double>* columns[] = {&c.score,  &c.reward, &c.advantage, &c.answer,
                                    &c.prompt, &c.group,  &c.clipped,   &c.aborted};
  for (const auto& rank : group.all_gather(own)) {
    for (size_t i = 0; i < rank.size(); ++i) columns[i % std::size(columns)]->push_back(rank[i]);
  }
  return c;
}

}  // namespace

double mean_of(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) sum += x;
  return v.empty() ? 0 : sum / static_cast<double>(v.size());
}

void add_sample_metrics(parallel::Group& group, std::span<const Experience> batch,
                        int64_t max_new_tokens, int64_t max_prompt_tokens, StepRecord& record) {
  const Columns c = gather(group, batch, max_new_tokens);
  record.set_mean_max_min("critic/score", c.score);
  record.set_mean_max_min("critic/rewards", c.reward);
  record.set_mean_max_min("critic/advantages", c.advantage);
  record.set_mean_max_min("critic/returns", c.advantage);
  double right = 0, total_tokens = 0, at_limit = 0;
  for (const double s : c.score) right += s > 0.5;
  for (size_t i = 0; i < c.answer.size(); ++i) total_tokens += c.answer[i] + c.prompt[i];
  for (const double p : c.prompt) at_limit += p >= static_cast<double>(max_prompt_tokens);
  const auto n = static_cast<double>(std::max<size_t>(1, c.score.size()));
  record.set(metric::kAccuracy, right / n);
  const std::vector<int64_t> groups(c.group.begin(), c.group.end());
  record.set(metric::kZeroStdGroups, zero_signal_share(c.reward, groups));
  record.set_lengths("response_length", c.answer);
  record.set(metric::kResponseClip, mean_of(c.clipped));
  record.set(metric::kAborted, mean_of(c.aborted));
  record.set_mean_max_min("prompt_length", c.prompt);
  record.set(metric::kPromptClip, at_limit / n);
  record.set("perf/total_num_tokens", total_tokens);
}

void add_update_metrics(std::span<const UpdateStats> updates, StepRecord& record) {
  double tokens = 0, clipped = 0, lower = 0, kl = 0, entropy = 0, pg = 0, kl_loss = 0, norm = 0,
         skipped = 0;
  for (const UpdateStats& u : updates) {
    tokens += u.num_tokens;
    clipped += u.num_clipped;
    lower += u.num_clipped_lower;
    kl += u.sum_kl;
    entropy += u.sum_entropy;
    pg += u.pg_loss;
    kl_loss += u.kl_loss;
    norm += u.grad_norm;
    skipped += u.skipped;
  }
  const auto n = static_cast<double>(updates.size());
  tokens = std::max(1.0, tokens);
  record.set(metric::kPgLoss, pg / n);
  record.set(metric::kClipFraction, clipped / tokens);
  record.set(metric::kClipFractionLower, lower / tokens);
  record.set(metric::kPpoKl, kl / tokens);
  record.set(metric::kEntropy, entropy / tokens);
  record.set(metric::kKlLoss, kl_loss / n);
  record.set(metric::kGradNorm, norm / n);
  record.set(metric::kSkippedUpdates, skipped);
}

}  // namespace keel::rl
