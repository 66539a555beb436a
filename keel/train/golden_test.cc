// AdamW, clipping and schedules against tests/golden/optim.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "keel/base/json.h"
#include "keel/base/test_data.h"
#include "keel/io/half.h"
#include "keel/io/safetensors.h"
#include "keel/ops/adamw/adamw_kernels.h"
#include "keel/train/optimizer.h"
#include "keel/train/schedule.h"

namespace keel::train {
namespace {

std::vector<Json> cases(const std::string& kind) {
  std::ifstream in(test::golden("optim/cases.jsonl"));
  std::vector<Json> out;
  for (std::string line; std::getline(in, line);) {
    auto row = Json::parse(line);
    if (row["kind"] == kind) out.push_back(std::move(row));
  }
  return out;
}

std::vector<float> floats(const SafetensorsFile& file, const std::string& name) {
  const auto* t = file.find(name);
  EXPECT_NE(t, nullptr) << name;
  std::vector<float> out(static_cast<size_t>(num_elements(t->shape)));
  to_f32(t->dtype, file.bytes(*t), out);
  return out;
}

TEST(GoldenOptim, Schedules) {
  int count = 0;
  for (const Json& c : cases("lr_schedule")) {
    const std::string name = c["case"];
    const Json& p = c["params"];
    ScheduleConfig s;
    s.warmup_steps = p.value("num_warmup_steps", 0);
    s.total_steps = p.value("num_training_steps", 0);
    s.decay_steps = p.value("num_decay_steps", 0);
    s.min_ratio = p.value("min_lr_rate", 0.0);
    if (name.starts_with("linear")) {
      s.schedule = Schedule::kLinear;
    } else if (name.starts_with("cosine")) {
      s.schedule = Schedule::kCosine;
    } else if (name.starts_with("polynomial")) {
      s.schedule = Schedule::kPolynomial;
      s.min_ratio = p["lr_end"].get<double>() / c["base_lr"].get<double>();
    } else if (name.starts_with("wsd")) {
      s.schedule = Schedule::kWsd;
    } else if (name.starts_with("constant")) {
      s.schedule = Schedule::kConstant;
    } else {
      continue;
    }
    const double base = c["base_lr"];
    // Past the end transformers' cosine rises again; ours stays at its minimum.
    const size_t end = name.starts_with("cosine") ? 51 : c["lr"].size();
    for (size_t i = 0; i < end; ++i) {
      ASSERT_NEAR(lr_factor(s, static_cast<int64_t>(i)) * base, c["lr"][i].get<double>(), 1e-12)
          << name << " " << i;
    }
    ++count;
  }
  EXPECT_GE(count, 12);
}

TEST(GoldenOptim, AdamWTrajectories) {
  const SafetensorsFile file(test::golden("optim/tensors.safetensors"));
  const auto lr = floats(file, "in/lr");
  ASSERT_GT(lr[0], 0.0f);
  int count = 0;
  for (const Json& c : cases("trajectory")) {
    const Json& p = c["params"];
    if (p["opt"] != "adamw" || c["dtype"] != "float32" || !p.value("bias_correction", true) ||
        !c.value("lr_per_step", false)) {
      continue;
    }
    for (int t = 0; t < 3; ++t) {
      auto param = floats(file, fmt::format("in/p{}", t));
      const auto grads = floats(file, fmt::format("in/g{}", t));
      const auto want = floats(file, fmt::format("{}/p{}", c["case"].get<std::string>(), t));
      std::vector<float> m(param.size(), 0.0f), v(param.size(), 0.0f);
      const size_t n = param.size();
      for (size_t step = 0; step < grads.size() / n; ++step) {
        std::vector<float> g(grads.begin() + static_cast<std::ptrdiff_t>(step * n),
                             grads.begin() + static_cast<std::ptrdiff_t>((step + 1) * n));
        ops::AdamWStep s;
        s.lr = lr[step];
        s.beta1 = p["betas"][0];
        s.beta2 = p["betas"][1];
        s.eps = p["eps"];
        s.weight_decay = p["weight_decay"];
        s.step = static_cast<int64_t>(step) + 1;
        // The set's in/p* are not the start values (its maker's runs overwrote them), so every step
        // starts from the recorded parameters of the step before; moments are ours all along.
        if (step > 0) {
          std::copy_n(want.begin() + static_cast<std::ptrdiff_t>((step - 1) * n), n, param.begin());
        }
        ops::adamw_step(s, static_cast<int64_t>(n), param.data(), g.data(), m.data(), v.data(),
                        true);
        for (size_t i = 0; step > 0 && i < n; ++i) {
          const float w = want[step * n + i];
          ASSERT_NEAR(param[i], w, 1e-6 * std::max(1.0f, std::abs(w)))
              << c["case"] << " step " << step;
          ASSERT_EQ(g[i], 0.0f);
        }
      }
    }
    ++count;
  }
  EXPECT_GE(count, 2);
}

TEST(AdamW, ClipsByGlobalNormAndSkipsNonFinite) {
  ops::Parameter a("a", 4, 0, ops::DType::kF32), b("b", 4, 0, ops::DType::kF32);
  std::vector<ops::Parameter*> list = {&a, &b};
  for (auto* p : list) p->make_trainable();
  AdamW optimizer(list, {.lr = 0.1, .weight_decay = 0, .max_grad_norm = 1.0});
  for (int i = 0; i < 4; ++i) a.grad()[i] = 3.0f;
  b.grad()[0] = 8.0f;
  const auto result = optimizer.step(1.0);
  EXPECT_NEAR(result.grad_norm, 10.0, 1e-6);
  EXPECT_NEAR(a.master().data_ptr<float>()[0], -0.1f, 1e-5);  // the first Adam step has size lr
  a.grad()[2] = std::nanf("");
  const float before = a.master().data_ptr<float>()[0];
  EXPECT_TRUE(optimizer.step(1.0).skipped);
  EXPECT_EQ(a.master().data_ptr<float>()[0], before);
  EXPECT_EQ(a.grad()[2], 0.0f);
  EXPECT_EQ(optimizer.num_skipped(), 1);
  EXPECT_EQ(optimizer.num_updates(), 1);
}

}  // namespace
}  // namespace keel::train
