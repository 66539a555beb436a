// Data parallel: two processes that share a batch get the gradients of one, tensor by tensor.
// The test starts itself again, once a rank, with KEEL_TEST_GRADIENTS=<file for rank 0's result>.
#include <gtest/gtest.h>

#include <cmath>

#include "keel/base/rng.h"
#include "keel/base/test_data.h"
#include "keel/base/thread_pool.h"
#include "keel/io/atomic_file.h"
#include "keel/io/safetensors.h"
#include "keel/model/load.h"
#include "keel/parallel/group.h"
#include "keel/parallel/test_ranks.h"
#include "keel/rl/update.h"

namespace keel::rl {
namespace {

struct Case {
  const char* model;
  ops::DType dtype;
};
std::string name_of(const testing::TestParamInfo<Case>& info) {
  return std::string(info.param.model) + (info.param.dtype == ops::DType::kF32 ? "_f32" : "_bf16");
}

// Four groups of three answers with advantages of both signs, made from counters alone.
std::vector<Experience> batch_of(const model::Model& model) {
  std::vector<Experience> batch;
  for (int64_t group = 0; group < 4; ++group) {
    for (int64_t j = 0; j < 3; ++j) {
      Experience e;
      e.group = group;
      e.sample.num_prompt = static_cast<int32_t>(4 + 5 * group);
      const int64_t answer = 7 + 6 * j + group;
      for (int64_t i = 0; i < e.sample.num_prompt + answer; ++i) {
        const auto stream =
            static_cast<uint64_t>(i < e.sample.num_prompt ? group : 10 + 3 * group + j);
        e.sample.ids.push_back(static_cast<int32_t>(uniform_int(
            static_cast<uint64_t>(model.spec().vocab), 5, static_cast<uint64_t>(i), stream)));
      }
      e.sample.loss_mask.assign(static_cast<size_t>(answer), 1);
      e.advantage = 0.7 * static_cast<double>(j - 1) + 0.1 * static_cast<double>(group) + 0.05;
      batch.push_back(std::move(e));
    }
  }
  return batch;
}

using Tensors = std::vector<std::vector<float>>;

// Gradients that the update of rank `group.rank()` hands to the optimizer.
Tensors gradients(const Case& c, parallel::Group& group) {
  set_num_threads(1);
  const auto model =
      model::load_model(ModelDir(test::golden(std::string("models/") + c.model)), c.dtype);
  model->reserve_positions(64);
  model->make_trainable();
  auto all = batch_of(*model);
  std::vector<PassItem> items = pass_items(all);
  const UpdateConfig config;
  const TokenValues old = compute_log_probs(*model, items, config.pass);
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].old_log_prob.assign(old.log_prob.begin() + old.offsets[i],
                               old.log_prob.begin() + old.offsets[i + 1]);
    all[i].sample.log_probs = all[i].old_log_prob;
  }
  const size_t share = all.size() / static_cast<size_t>(group.size()),
               begin = share * static_cast<size_t>(group.rank());
  std::vector<const Experience*> own;
  for (size_t i = begin; i < begin + share; ++i) own.push_back(&all[i]);
  add_gradients(*model, group, own, config);
  Tensors out;
  for (ops::Parameter* p : model->parameters())
    out.emplace_back(p->grad(), p->grad() + p->num_elements());
  return out;
}

class TwoRanks : public testing::TestWithParam<Case> {
 protected:
  void TearDown() override { set_num_threads(2); }
};

INSTANTIATE_TEST_SUITE_P(All, TwoRanks,
                         testing::Values(Case{"llama3", ops::DType::kF32},
                                         Case{"llama3", ops::DType::kBF16},
                                         Case{"qwen3_moe", ops::DType::kF32},
                                         Case{"qwen3_moe", ops::DType::kBF16}),
                         name_of);

TEST_P(TwoRanks, GradientsAreThoseOfOne) {
  if (const auto file = env("KEEL_TEST_GRADIENTS")) {  // a rank
    const auto group = parallel::make_world();
    ASSERT_EQ(group->size(), 2);
    const Tensors tensors = gradients(GetParam(), *group);
    if (group->rank() != 0) return;
    AtomicWriter writer(*file);
    for (const auto& t : tensors) writer.write(std::as_bytes(std::span(t)));
    writer.commit();
    return;
  }
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  const std::string file = fmt::format("{}gradients_{}", testing::TempDir(), getpid());
  const std::string filter =
      fmt::format("--gtest_filter={}.{}", info->test_suite_name(), info->name());
  ASSERT_EQ(test::run_ranks({filter, "--gtest_brief=1"}, 2, 2, test::free_port(),
                            {"KEEL_TEST_GRADIENTS=" + file}),
            (std::vector{0, 0}));
  const Tensors one = gradients(GetParam(), *parallel::Group::self());
  std::FILE* in = std::fopen(file.c_str(), "rb");
  ASSERT_NE(in, nullptr);
  double worst = 0;
  for (const auto& a : one) {
    std::vector<float> b(a.size());
    ASSERT_EQ(std::fread(b.data(), sizeof(float), b.size(), in), b.size());
    double diff = 0, norm = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      diff += std::pow(static_cast<double>(a[i]) - b[i], 2);
      norm += std::pow(static_cast<double>(a[i]), 2);
    }
    EXPECT_TRUE(norm > 0 || diff == 0);
    if (norm > 0) worst = std::max(worst, std::sqrt(diff / norm));
  }
  std::fclose(in);
  std::filesystem::remove(file);
  EXPECT_LE(worst, GetParam().dtype == ops::DType::kF32 ? 1e-5 : 1e-4);
  RecordProperty("worst", fmt::format("{:.2e}", worst));
}

}  // namespace
}  // namespace keel::rl
