#include "keel/base/error.h"
#include "keel/ops/autograd.h"
#include "keel/ops/embedding/embedding_kernels.h"
#include "keel/ops/functions.h"

namespace keel::ops {
namespace {

struct EmbeddingBackward : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    embedding_backward(tokens.data(), grads[0].contiguous().const_data_ptr<float>(),
                       static_cast<int64_t>(tokens.size()), table->k(), table->grad());
    return {};
  }
  std::vector<int32_t> tokens;
  Parameter* table = nullptr;
};

}  // namespace

at::Tensor embedding(Parameter& table, std::span<const int32_t> tokens) {
  const auto m = static_cast<int64_t>(tokens.size());
  for (const int32_t t : tokens) {
    KEEL_REQUIRE(t >= 0 && t < table.n(), "[{}] expected token ids in [0, {}), got {}",
                 table.name(), table.n(), t);
  }
  auto x = new_f32({m, table.k()});
  embedding_forward(table.view(), tokens.data(), m, x.data_ptr<float>());
  if (recording() && table.trainable()) {
    auto node = c10::make_intrusive<EmbeddingBackward>();
    node->tokens.assign(tokens.begin(), tokens.end());
    node->table = &table;
    record(x, node);
  }
  return x;
}

}  // namespace keel::ops
