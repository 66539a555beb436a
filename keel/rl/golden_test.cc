// Advantages, losses and KL estimators against tests/golden/rl (double precision, 1e-7 relative).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "keel/base/json.h"
#include "keel/base/test_data.h"
#include "keel/io/safetensors.h"
#include "keel/rl/advantages.h"
#include "keel/rl/losses.h"

namespace keel::rl {
namespace {

constexpr double kTolerance = 1e-7;

class Golden {
 public:
  Golden() : file_(test::golden("rl/tensors.safetensors")) {}

  std::vector<double> values(const std::string& name) const {
    const auto* t = file_.find(name);
    EXPECT_NE(t, nullptr) << name;
    const auto bytes = file_.bytes(*t);
    std::vector<double> out;
    if (t->dtype == DType::kF64) {
      out.resize(bytes.size() / 8);
      std::memcpy(out.data(), bytes.data(), bytes.size());
    } else if (t->dtype == DType::kI64) {
      std::vector<int64_t> raw(bytes.size() / 8);
      std::memcpy(raw.data(), bytes.data(), bytes.size());
      out.assign(raw.begin(), raw.end());
    } else {
      for (const auto b : bytes) out.push_back(static_cast<double>(b));
    }
    return out;
  }
  int64_t columns(const std::string& name) const { return file_.find(name)->shape.back(); }

 private:
  SafetensorsFile file_;
};

// Dense [B, T] cases as ragged sequences of length T with a mask.
struct Batch {
  std::vector<int64_t> offsets;
  std::vector<uint8_t> mask;
  LossCounts counts;

  Batch(const Golden& golden, const std::string& mask_name) {
    const auto m = golden.values(mask_name);
    const int64_t columns = golden.columns(mask_name);
    for (int64_t i = 0; i <= std::ssize(m); i += columns) offsets.push_back(i);
    for (const double v : m) mask.push_back(v != 0);
    for (int64_t s = 0; s < std::ssize(offsets) - 1; ++s) {
      double own = 0;
      for (int64_t i = 0; i < columns; ++i) own += mask[static_cast<size_t>(s * columns + i)];
      counts.num_tokens += own;
      counts.num_sequences += own > 0;
    }
    counts.scale = static_cast<double>(columns);
  }
  Ragged ragged() const { return {offsets}; }
  // Poisons masked entries: they must not matter.
  std::vector<double> poisoned(std::vector<double> x) const {
    for (size_t i = 0; i < x.size(); ++i) {
      if (!mask[i]) x[i] = std::nan("");
    }
    return x;
  }
};

std::vector<Json> cases(const std::string& prefix) {
  std::ifstream in(test::golden("rl/cases.jsonl"));
  std::vector<Json> out;
  for (std::string line; std::getline(in, line);) {
    auto row = Json::parse(line);
    if (row["kind"].get<std::string>().starts_with(prefix)) out.push_back(std::move(row));
  }
  return out;
}

void expect_close(std::span<const double> got, std::span<const double> want,
                  const std::string& name) {
  ASSERT_EQ(got.size(), want.size()) << name;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], kTolerance * std::max(1.0, std::abs(want[i])))
        << name << " at " << i;
  }
}

LossAggregation aggregation(const std::string& name) {
  if (name == "token-mean") return LossAggregation::kTokenMean;
  if (name == "seq-mean-token-sum") return LossAggregation::kSeqMeanTokenSum;
  if (name == "seq-mean-token-mean") return LossAggregation::kSeqMeanTokenMean;
  EXPECT_EQ(name, "seq-mean-token-sum-norm");
  return LossAggregation::kSeqMeanTokenSumNorm;
}

TEST(GoldenRl, PolicyLosses) {
  const Golden golden;
  int count = 0;
  for (const Json& c : cases("policy_loss")) {
    if (c["kind"] != "policy_loss") continue;
    const auto loss = c["params"]["loss"].get<std::string>(), name = c["case"].get<std::string>();
    PolicyLossConfig config;
    if (loss == "vanilla") {
      config.loss = PolicyLoss::kPpoClip;
    } else if (loss == "gspo") {
      config.loss = PolicyLoss::kGspo;
    } else if (loss == "cispo") {
      config.loss = PolicyLoss::kCispo;
    } else {
      continue;  // losses of other stages
    }
    const Json& p = c["params"];
    config.aggregation = aggregation(p["agg"]);
    config.clip_low = p["clip_low"];
    config.clip_high = p["clip_high"];
    config.clip_c = p.value("clip_c", 3.0);
    const auto input = [&](const char* key) { return golden.values(c["inputs"][key]); };
    Batch batch(golden, c["inputs"]["mask"]);
    const double local_tokens = batch.counts.num_tokens;
    const double ranks = p.value("dp_size", 1.0);
    batch.counts.num_tokens = p.value("batch_num_tokens", batch.counts.num_tokens) / ranks;
    batch.counts.num_sequences = p.value("global_batch_size", batch.counts.num_sequences) /
                                 (p.contains("global_batch_size") ? ranks : 1);
    batch.counts.scale = p.value("loss_scale_factor", batch.counts.scale);
    if (!p.contains("batch_num_tokens")) batch.counts.num_tokens = local_tokens;
    const auto weights = c["inputs"].contains("weights") ? input("weights") : std::vector<double>{};
    std::vector<double> grad(batch.mask.size());
    const auto result =
        policy_loss(config, batch.counts, batch.ragged(), batch.poisoned(input("logp")),
                    batch.poisoned(input("old_logp")), batch.poisoned(input("advantages")),
                    batch.mask, weights, grad);
    EXPECT_NEAR(result.loss, c["scalars"]["loss"], kTolerance * 10) << name;
    EXPECT_NEAR(result.num_clipped / local_tokens, c["scalars"]["pg_clipfrac"], 1e-6) << name;
    EXPECT_NEAR(result.num_clipped_lower / local_tokens, c["scalars"]["pg_clipfrac_lower"], 1e-6)
        << name;
    EXPECT_NEAR(result.sum_kl / local_tokens, c["scalars"]["ppo_kl"], 1e-7) << name;
    expect_close(grad, golden.values(c["outputs"]["grad_logp"]), name);
    ++count;
  }
  EXPECT_EQ(count, 37);
}

TEST(GoldenRl, KlEstimators) {
  const Golden golden;
  for (const Json& c : cases("kl")) {
    if (c["kind"] != "kl") continue;
    const std::string estimator = c["params"]["estimator"];
    const auto kind = estimator == "k1"    ? KlEstimator::kK1
                      : estimator == "abs" ? KlEstimator::kAbs
                      : estimator == "k2"  ? KlEstimator::kK2
                                           : KlEstimator::kK3;
    const Batch batch(golden, c["inputs"]["mask"]);
    const auto p = golden.values(c["inputs"]["logp"]), q = golden.values(c["inputs"]["ref_logp"]);
    std::vector<double> value(p.size(), 0.0), slope(p.size(), 0.0), grad(p.size(), 0.0);
    for (size_t i = 0; i < p.size(); ++i) {
      const auto v = kl_value(kind, c["params"]["straight_through"], p[i], q[i]);
      value[i] = v.value;
      slope[i] = v.grad;
    }
    const double loss = add_aggregated(LossAggregation::kTokenMean, batch.counts, batch.ragged(),
                                       value, slope, batch.mask, 1.0, grad);
    EXPECT_NEAR(loss, c["scalars"]["loss_token_mean"], 1e-6) << c["case"];
    expect_close(grad, golden.values(c["outputs"]["grad_logp"]), c["case"]);
  }
}

TEST(GoldenRl, Advantages) {
  const Golden golden;
  int count = 0;
  for (const Json& c : cases("adv_")) {
    const std::string kind = c["kind"];
    AdvantageConfig config;
    if (kind == "adv_grpo") {
      config.estimator = AdvantageEstimator::kGrpo;
    } else if (kind == "adv_dr_grpo") {
      config.estimator = AdvantageEstimator::kDrGrpo;
    } else if (kind == "adv_rloo" && c["params"]["single"] == "pass") {
      config.estimator = AdvantageEstimator::kRloo;
    } else if (kind == "adv_reinforce_pp_baseline") {
      config.estimator = AdvantageEstimator::kReinforcePlusPlusBaseline;
    } else {
      continue;
    }
    config.epsilon = c["params"].value("epsilon", 1e-6);
    const Batch batch(golden, c["inputs"]["mask"]);
    const auto token_rewards = golden.values(c["inputs"]["rewards"]);
    const auto group = golden.values(c["inputs"]["group"]);
    std::vector<double> rewards;
    std::vector<int64_t> groups(group.begin(), group.end()), lengths;
    for (int64_t s = 0; s < batch.ragged().num_sequences(); ++s) {
      double sum = 0;
      int64_t trained = 0;
      for (int64_t i = batch.ragged().begin(s); i < batch.ragged().end(s); ++i) {
        sum += token_rewards[static_cast<size_t>(i)];
        trained += batch.mask[static_cast<size_t>(i)];
      }
      rewards.push_back(sum);
      lengths.push_back(trained);
    }
    const auto a = compute_advantages(config, rewards, groups, lengths);
    std::vector<double> spread(batch.mask.size(), 0.0);
    for (int64_t s = 0; s < batch.ragged().num_sequences(); ++s) {
      for (int64_t i = batch.ragged().begin(s); i < batch.ragged().end(s); ++i) {
        if (batch.mask[static_cast<size_t>(i)])
          spread[static_cast<size_t>(i)] = a[static_cast<size_t>(s)];
      }
    }
    expect_close(spread, golden.values(c["outputs"]["advantages"]), c["case"]);
    ++count;
  }
  EXPECT_EQ(count, 8);
}

}  // namespace
}  // namespace keel::rl
