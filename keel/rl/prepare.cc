#include "keel/rl/prepare.h"

#include <algorithm>

#include "keel/rl/stopwatch.h"
#include "keel/rl/update.h"

namespace keel::rl {
namespace {

std::vector<float> of_item(const TokenValues& values, size_t item) {
  return {values.log_prob.begin() + values.offsets[item],
          values.log_prob.begin() + values.offsets[item + 1]};
}

// Returns the sum that was subtracted, without its coefficient.
double subtract_kl(const AlgorithmSection& config, Experience& e) {
  double kl = 0;
  for (size_t t = 0; t < e.ref_log_prob.size(); ++t) {
    if (e.sample.loss_mask[t])
      kl += kl_value(config.kl_penalty, false, e.old_log_prob[t], e.ref_log_prob[t]).value;
  }
  e.reward -= config.kl_coef * kl;
  return kl;
}

}  // namespace

void fill_log_probs(const TrainConfig& config, model::Model& model, model::Model* reference,
                    bool recompute, std::vector<Experience>& batch, StepRecord& record) {
  const PassOptions pass = update_config(config).pass;
  const auto items = pass_items(batch);
  for (Experience& e : batch) e.old_log_prob = e.sample.log_probs;
  if (recompute) {
    const Stopwatch watch;
    const TokenValues values = compute_log_probs(model, items, pass);
    for (size_t i = 0; i < batch.size(); ++i) batch[i].old_log_prob = of_item(values, i);
    add_time(record, "old_log_prob", watch);
  }
  if (reference == nullptr) return;
  const Stopwatch watch;
  const TokenValues values = compute_log_probs(*reference, items, pass);
  double sum_kl = 0, count = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    batch[i].ref_log_prob = of_item(values, i);
    if (!config.algorithm.use_kl_in_reward) continue;
    sum_kl += subtract_kl(config.algorithm, batch[i]);
    count += static_cast<double>(batch[i].ref_log_prob.size());
  }
  if (config.algorithm.use_kl_in_reward) {
    record.set("actor/reward_kl_penalty", sum_kl / std::max(1.0, count));
    record.set("actor/reward_kl_penalty_coeff", config.algorithm.kl_coef);
  }
  add_time(record, "ref", watch);
}

void fill_advantages(const AlgorithmSection& config, parallel::Group& group,
                     std::vector<Experience>& batch) {
  AdvantageConfig a;
  a.estimator = config.adv_estimator;
  if (a.estimator == AdvantageEstimator::kGrpo && !config.norm_adv_by_std) {
    a.estimator = AdvantageEstimator::kDrGrpo;
  }
  // All ranks see all answers, so that whitening over the batch needs no special case.
  std::vector<double> own;
  for (const Experience& e : batch) {
    own.insert(own.end(), {e.reward, static_cast<double>(e.group),
                           static_cast<double>(e.num_answer_tokens())});
  }
  std::vector<double> rewards;
  std::vector<int64_t> groups, tokens;
  size_t first = 0;
  int rank = 0;
  for (const auto& values : group.all_gather(own)) {
    if (rank++ == group.rank()) first = rewards.size();
    for (size_t i = 0; i < values.size(); i += 3) {
      rewards.push_back(values[i]);
      groups.push_back(static_cast<int64_t>(values[i + 1]));
      tokens.push_back(static_cast<int64_t>(values[i + 2]));
    }
  }
  const auto advantages = compute_advantages(a, rewards, groups, tokens);
  for (size_t i = 0; i < batch.size(); ++i) batch[i].advantage = advantages[first + i];
}

}  // namespace keel::rl
