#include "keel/base/error.h"
#include "keel/ops/attention/attention_kernels.h"
#include "keel/ops/autograd.h"
#include "keel/ops/functions.h"

namespace keel::ops {
namespace {

const float* vector_or_null(const Parameter* p) { return p != nullptr ? p->vector() : nullptr; }

// Rotated queries and a pool that holds the batch's keys and values; v lies in the fused
// projection.
struct Projected {
  at::Tensor q;
  at::Tensor k_blocks, v_blocks;  // only for a temporary pool
};

Projected project(const at::Tensor& qkv, const AttentionLayer& layer, const AttentionPlan& plan,
                  const KvPool* cache, KvPool& pool) {
  const AttentionShape& s = layer.shape;
  const int64_t m = qkv.size(0), q_dim = s.num_heads * s.head_dim,
                kv_dim = s.num_kv_heads * s.head_dim;
  Projected p;
  p.q = new_f32({m, q_dim});
  const auto k = new_f32({m, kv_dim});
  rope_forward(layer.rope, *layer.table, plan.positions.data(), vector_or_null(layer.q_norm),
               vector_or_null(layer.k_norm), qkv.const_data_ptr<float>(), m, p.q.data_ptr<float>(),
               k.data_ptr<float>());
  if (cache != nullptr) {
    pool = *cache;
  } else {
    // Zeroed: slots of the last block that no row fills must be finite.
    p.k_blocks = at::zeros({plan.num_blocks, s.num_kv_heads, s.head_dim, kKvBlock}, at::kFloat);
    p.v_blocks = at::zeros({plan.num_blocks, s.num_kv_heads, kKvBlock, s.head_dim}, at::kFloat);
    pool = {p.k_blocks.data_ptr<float>(), p.v_blocks.data_ptr<float>(), DType::kF32};
  }
  // kv_scatter takes one leading dimension; v is copied out of the projection to match k.
  auto v = new_f32({m, kv_dim});
  const float* from = qkv.const_data_ptr<float>() + q_dim + kv_dim;
  for (int64_t r = 0; r < m; ++r) {
    std::copy_n(from + r * qkv.size(1), kv_dim, v.data_ptr<float>() + r * kv_dim);
  }
  kv_scatter(s, k.const_data_ptr<float>(), v.const_data_ptr<float>(), kv_dim, plan.slots, pool);
  return p;
}

struct AttentionBackward : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    const AttentionShape& s = layer.shape;
    const int64_t m = qkv.size(0), q_dim = s.num_heads * s.head_dim,
                  kv_dim = s.num_kv_heads * s.head_dim;
    const auto dout = grads[0].contiguous();
    KvPool pool;
    const Projected p =
        project(qkv, layer, *plan, nullptr, pool);  // recomputed: cheap, saves memory
    auto dq = new_f32({m, q_dim});
    auto dk_blocks = new_f32(p.v_blocks.sizes()), dv_blocks = new_f32(p.v_blocks.sizes());
    attention_backward(s, p.q.const_data_ptr<float>(), q_dim, pool, plan->sequences,
                       out.const_data_ptr<float>(), q_dim, lse.const_data_ptr<float>(),
                       dout.const_data_ptr<float>(), q_dim, dq.data_ptr<float>(), q_dim,
                       dk_blocks.data_ptr<float>(), dv_blocks.data_ptr<float>());
    auto dk = at::zeros({m, kv_dim}, at::kFloat), dv = at::zeros({m, kv_dim}, at::kFloat);
    kv_gather_grad(s, dk_blocks.const_data_ptr<float>(), dv_blocks.const_data_ptr<float>(),
                   plan->slots, dk.data_ptr<float>(), dv.data_ptr<float>(), kv_dim);
    auto dqkv = new_f32(qkv.sizes());
    float* to = dqkv.data_ptr<float>() + q_dim + kv_dim;
    for (int64_t r = 0; r < m; ++r) {
      std::copy_n(dv.const_data_ptr<float>() + r * kv_dim, kv_dim, to + r * qkv.size(1));
    }
    rope_backward(layer.rope, *layer.table, plan->positions.data(), vector_or_null(layer.q_norm),
                  vector_or_null(layer.k_norm), qkv.const_data_ptr<float>(),
                  dq.const_data_ptr<float>(), dk.const_data_ptr<float>(), m, dqkv.data_ptr<float>(),
                  layer.q_norm != nullptr ? layer.q_norm->grad() : nullptr,
                  layer.k_norm != nullptr ? layer.k_norm->grad() : nullptr);
    return {dqkv};
  }
  void release_variables() override {
    qkv.reset();
    out.reset();
    lse.reset();
  }
  AttentionLayer layer;
  std::shared_ptr<const AttentionPlan> plan;
  at::Tensor qkv, out, lse;
};

}  // namespace

at::Tensor attention(const at::Tensor& qkv, const AttentionLayer& layer,
                     const std::shared_ptr<const AttentionPlan>& plan, const KvPool* pool) {
  const AttentionShape& s = layer.shape;
  const int64_t m = qkv.size(0), q_dim = s.num_heads * s.head_dim;
  KEEL_CHECK(qkv.size(1) == q_dim + 2 * s.num_kv_heads * s.head_dim, "{} columns", qkv.size(1));
  const bool grad = recording() && qkv.requires_grad();
  KEEL_CHECK(!grad || pool == nullptr, "training attends through a temporary pool");
  KvPool used;
  const Projected p = project(qkv, layer, *plan, pool, used);
  auto out = new_f32({m, q_dim});
  auto lse = grad ? new_f32({m, s.num_heads}) : at::Tensor();
  attention_forward(s, p.q.const_data_ptr<float>(), q_dim, used, plan->sequences,
                    out.data_ptr<float>(), q_dim, grad ? lse.data_ptr<float>() : nullptr);
  if (grad) {
    auto node = c10::make_intrusive<AttentionBackward>();
    node->layer = layer;
    node->plan = plan;
    node->qkv = qkv.detach();
    node->out = out.detach();
    node->lse = lse;
    record(out, node, qkv);
  }
  return out;
}

}  // namespace keel::ops
