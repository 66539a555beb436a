#include "keel/rl/policy_pass.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "keel/balance/micro_batch.h"
#include "keel/base/error.h"
#include "keel/model/batch.h"

namespace keel::rl {
namespace {

struct Forward {
  ops::LogProbs out;
  int64_t rows = 0;
};

balance::MicroBatchPlan plan_of(std::span<const PassItem> items, const PassOptions& options) {
  std::vector<balance::PackItem> sizes;
  for (const PassItem& item : items) {
    const auto prompt = static_cast<int64_t>(item.prompt.size());
    const bool shares = options.shared_prefix && item.group >= 0;
    sizes.push_back({std::ssize(item.answer) - 1, shares ? item.group : -1, prompt});
  }
  return balance::pack_micro_batches(sizes, {.cap_tokens = options.micro_batch_tokens});
}

void append_kept(const PassItem& item, ops::LogProbTargets& targets) {
  if (targets.kept_offsets.empty()) targets.kept_offsets.push_back(0);
  targets.kept_ids.insert(targets.kept_ids.end(), item.kept_ids.begin(), item.kept_ids.end());
  const int64_t base = targets.kept_offsets.back();
  for (size_t t = 0; t < item.answer.size(); ++t) {
    targets.kept_offsets.push_back(base +
                                   (item.kept_offsets.empty() ? 0 : item.kept_offsets[t + 1]));
  }
}

Forward forward(model::Model& model, std::span<const PassItem> items,
                std::span<const int32_t> chosen, bool shared_prefix) {
  std::vector<model::Continuations> groups;
  ops::LogProbTargets targets;
  const bool cut = std::any_of(chosen.begin(), chosen.end(), [&](int32_t i) {
    return !items[static_cast<size_t>(i)].kept_ids.empty();
  });
  int64_t last_group = -1;
  for (const int32_t index : chosen) {
    const PassItem& item = items[static_cast<size_t>(index)];
    if (groups.empty() || item.group < 0 || item.group != last_group)
      groups.push_back({item.prompt, {}});
    last_group = item.group;
    groups.back().answers.push_back(item.answer);
    targets.temperature.insert(targets.temperature.end(), item.answer.size(),
                               item.temperature > 0 ? item.temperature : 1.0f);
    if (cut) append_kept(item, targets);
  }
  model::PackedBatch batch = model::pack(groups, shared_prefix);
  targets.targets = std::move(batch.targets);
  model.reserve_positions(batch.max_position + 1);
  const auto hidden = model.forward(batch.tokens, {batch.plan, nullptr});
  const auto rows = ops::select_rows(hidden, std::move(batch.rows));
  return {ops::linear_log_prob(rows, model.head(), std::move(targets)), std::ssize(batch.tokens)};
}

TokenValues values_of(std::span<const PassItem> items, std::span<const int32_t> chosen,
                      const Forward& pass) {
  TokenValues values;
  values.offsets.push_back(0);
  for (const int32_t i : chosen) {
    values.offsets.push_back(values.offsets.back() +
                             std::ssize(items[static_cast<size_t>(i)].answer));
  }
  const auto n = static_cast<size_t>(values.offsets.back());
  const float* log_prob = pass.out.log_prob.const_data_ptr<float>();
  const float* entropy = pass.out.entropy.const_data_ptr<float>();
  values.log_prob.assign(log_prob, log_prob + n);
  values.entropy.assign(entropy, entropy + n);
  return values;
}

at::Tensor to_tensor(const std::vector<double>& values) {
  auto t = at::empty({std::ssize(values)}, at::kFloat);
  std::copy(values.begin(), values.end(), t.data_ptr<float>());
  return t;
}

}  // namespace

TokenValues compute_log_probs(model::Model& model, std::span<const PassItem> items,
                              const PassOptions& options) {
  const c10::NoGradGuard no_grad;
  TokenValues all;
  all.offsets.push_back(0);
  for (const PassItem& item : items)
    all.offsets.push_back(all.offsets.back() + std::ssize(item.answer));
  all.log_prob.resize(static_cast<size_t>(all.offsets.back()));
  all.entropy.resize(all.log_prob.size());
  for (const auto& micro : plan_of(items, options).micro_batches) {
    const Forward pass = forward(model, items, micro.items, options.shared_prefix);
    const TokenValues values = values_of(items, micro.items, pass);
    for (size_t i = 0; i < micro.items.size(); ++i) {
      const int64_t from = values.offsets[i], count = values.offsets[i + 1] - from;
      const int64_t to = all.offsets[static_cast<size_t>(micro.items[i])];
      std::copy_n(values.log_prob.begin() + from, count, all.log_prob.begin() + to);
      std::copy_n(values.entropy.begin() + from, count, all.entropy.begin() + to);
    }
  }
  return all;
}

int64_t accumulate_gradients(model::Model& model, std::span<const PassItem> items,
                             const PassOptions& options, const MicroBatchLoss& loss) {
  int64_t rows = 0;
  for (const auto& micro : plan_of(items, options).micro_batches) {
    const Forward pass = forward(model, items, micro.items, options.shared_prefix);
    const MicroBatchGrads grads = loss(micro.items, values_of(items, micro.items, pass));
    rows += pass.rows;
    torch::autograd::variable_list outputs = {pass.out.log_prob},
                                   gradients = {to_tensor(grads.d_log_prob)};
    if (!grads.d_entropy.empty()) {
      outputs.push_back(pass.out.entropy);
      gradients.push_back(to_tensor(grads.d_entropy));
    }
    torch::autograd::backward(outputs, gradients);
  }
  return rows;
}

}  // namespace keel::rl
