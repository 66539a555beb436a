#include "keel/rl/update.h"

#include <algorithm>
#include <cmath>

#include "keel/base/error.h"

namespace keel::rl {
namespace {

// The arrays that losses want, for the items of one micro-batch.
struct LossInputs {
  std::vector<double> log_prob, old_log_prob, advantage, ref_log_prob;
  std::vector<uint8_t> mask;
};

LossInputs gather(std::span<const Experience* const> batch, std::span<const int32_t> items,
                  const TokenValues& values) {
  LossInputs in;
  in.log_prob.assign(values.log_prob.begin(), values.log_prob.end());
  for (const int32_t i : items) {
    const Experience& e = *batch[static_cast<size_t>(i)];
    in.old_log_prob.insert(in.old_log_prob.end(), e.old_log_prob.begin(), e.old_log_prob.end());
    in.ref_log_prob.insert(in.ref_log_prob.end(), e.ref_log_prob.begin(), e.ref_log_prob.end());
    in.mask.insert(in.mask.end(), e.sample.loss_mask.begin(), e.sample.loss_mask.end());
    in.advantage.insert(in.advantage.end(), e.sample.loss_mask.size(), e.advantage);
  }
  return in;
}

void add_probability_diffs(std::span<const Experience* const> batch, std::span<const int32_t> items,
                           const TokenValues& values, UpdateStats& stats) {
  size_t at = 0;
  for (const int32_t i : items) {
    const Experience& e = *batch[static_cast<size_t>(i)];
    for (size_t t = 0; t < e.sample.log_probs.size(); ++t, ++at) {
      if (!e.sample.loss_mask[t]) continue;
      const double diff = std::abs(std::exp(static_cast<double>(values.log_prob[at])) -
                                   std::exp(static_cast<double>(e.sample.log_probs[t])));
      stats.diff_sum += diff;
      stats.diff_square += diff * diff;
      stats.diff_max = std::max(stats.diff_max, diff);
    }
  }
}

MicroBatchGrads micro_batch_loss(std::span<const Experience* const> batch,
                                 const UpdateConfig& config, const LossCounts& counts,
                                 std::span<const int32_t> items, const TokenValues& values,
                                 UpdateStats& stats) {
  const LossInputs in = gather(batch, items, values);
  const Ragged tokens{values.offsets};
  MicroBatchGrads grads;
  grads.d_log_prob.resize(in.log_prob.size());
  const auto policy = policy_loss(config.policy, counts, tokens, in.log_prob, in.old_log_prob,
                                  in.advantage, in.mask, {}, grads.d_log_prob);
  stats.pg_loss += policy.loss;
  stats.num_clipped += policy.num_clipped;
  stats.num_clipped_lower += policy.num_clipped_lower;
  stats.sum_kl += policy.sum_kl;
  if (config.kl_coef > 0) {
    std::vector<double> value(in.log_prob.size()), slope(in.log_prob.size());
    for (size_t i = 0; i < value.size(); ++i) {
      const KlValue v = kl_value(config.kl, false, in.log_prob[i], in.ref_log_prob[i]);
      value[i] = v.value;
      slope[i] = v.grad;
    }
    stats.kl_loss += add_aggregated(config.policy.aggregation, counts, tokens, value, slope,
                                    in.mask, config.kl_coef, grads.d_log_prob);
  }
  for (size_t i = 0; i < in.mask.size(); ++i)
    stats.sum_entropy += in.mask[i] ? values.entropy[i] : 0.0;
  if (config.entropy_coef > 0) {
    grads.d_entropy = aggregation_weights(config.policy.aggregation, counts, tokens, in.mask);
    for (double& d : grads.d_entropy) d *= -config.entropy_coef;
  }
  add_probability_diffs(batch, items, values, stats);
  return grads;
}

LossCounts global_counts(parallel::Group& group, std::span<const Experience* const> batch,
                         double scale) {
  double sums[2] = {};
  for (const Experience* e : batch) {
    const auto trained = static_cast<double>(std::count_if(
        e->sample.loss_mask.begin(), e->sample.loss_mask.end(), [](uint8_t m) { return m != 0; }));
    sums[0] += trained;
    sums[1] += trained > 0;
  }
  group.all_reduce_sum(std::span<double>(sums));
  return {std::max(1.0, sums[0]), std::max(1.0, sums[1]), scale};
}

void reduce_stats(parallel::Group& group, UpdateStats& s) {
  double sums[] = {s.pg_loss, s.kl_loss,     s.num_clipped, s.num_clipped_lower,
                   s.sum_kl,  s.sum_entropy, s.diff_sum,    s.diff_square};
  group.all_reduce_sum(std::span<double>(sums));
  s.pg_loss = sums[0];
  s.kl_loss = sums[1];
  s.num_clipped = sums[2];
  s.num_clipped_lower = sums[3];
  s.sum_kl = sums[4];
  s.sum_entropy = sums[5];
  s.diff_sum = sums[6];
  s.diff_square = sums[7];
  for (const auto& v : group.all_gather(std::span<const double>(&s.diff_max, 1))) {
    s.diff_max = std::max(s.diff_max, v[0]);
  }
}

}  // namespace

UpdateConfig update_config(const TrainConfig& c) {
  UpdateConfig u;
  u.policy = {c.actor.loss, c.actor.loss_agg_mode, c.actor.clip_ratio_low, c.actor.clip_ratio_high,
              c.actor.clip_ratio_c};
  u.pass = {c.actor.micro_batch_tokens, c.actor.shared_prefix};
  u.loss_scale = static_cast<double>(c.rollout.max_new_tokens);
  u.entropy_coef = c.actor.entropy_coef;
  u.kl_coef = c.actor.use_kl_loss ? c.actor.kl_loss_coef : 0;
  u.kl = c.actor.kl_loss_type;
  return u;
}

UpdateStats add_gradients(model::Model& model, parallel::Group& group,
                          std::span<const Experience* const> batch, const UpdateConfig& config) {
  const LossCounts counts = global_counts(group, batch, config.loss_scale);
  UpdateStats stats;
  std::vector<PassItem> items;
  for (const Experience* e : batch) items.push_back(e->pass_item());
  stats.num_rows = accumulate_gradients(
      model, items, config.pass, [&](std::span<const int32_t> chosen, const TokenValues& values) {
        return micro_batch_loss(batch, config, counts, chosen, values, stats);
      });
  for (ops::Parameter* p : model.parameters()) {
    group.all_reduce_sum(std::span<float>(p->grad(), static_cast<size_t>(p->num_elements())));
  }
  reduce_stats(group, stats);
  stats.num_tokens = counts.num_tokens;
  return stats;
}

UpdateStats update_policy(model::Model& model, train::AdamW& optimizer, parallel::Group& group,
                          std::span<const Experience* const> batch, const UpdateConfig& config,
                          double lr_factor) {
  UpdateStats stats = add_gradients(model, group, batch, config);
  const auto update = optimizer.step(lr_factor);
  stats.grad_norm = update.grad_norm;
  stats.skipped = update.skipped;
  model.publish();
  return stats;
}

}  // namespace keel::rl
