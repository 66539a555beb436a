#include "keel/model/model.h"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <cmath>

#include "keel/base/error.h"

namespace keel::model {

using ops::Parameter;

struct Model::Layer {
  Parameter* input_norm = nullptr;
  Parameter* qkv = nullptr;
  Parameter* qkv_bias = nullptr;
  Parameter* q_norm = nullptr;
  Parameter* k_norm = nullptr;
  Parameter* o = nullptr;
  Parameter* post_norm = nullptr;
  Parameter* gate_up = nullptr;  // dense: [2 * intermediate, hidden]; MoE: one an expert
  Parameter* down = nullptr;
  Parameter* router = nullptr;  // null: dense
};

namespace {

constexpr int64_t kHeadMultiple = 16;

std::vector<float> padded_inv_freq(const ModelSpec& spec) {
  auto freq = inv_freq(spec);
  freq.resize(static_cast<size_t>(padded_head_dim(spec) / 2), 0.0f);
  return freq;
}

}  // namespace

int64_t padded_head_dim(const ModelSpec& spec) {
  return (spec.head_dim + kHeadMultiple - 1) / kHeadMultiple * kHeadMultiple;
}

KvCache::KvCache(const ModelSpec& spec, ops::DType dtype, int32_t num_blocks)
    : num_blocks_(num_blocks) {
  const auto type = dtype == ops::DType::kBF16 ? at::kBFloat16 : at::kFloat;
  for (int64_t i = 0; i < spec.layers; ++i) {
    for (int kv = 0; kv < 2; ++kv) {
      storage_.push_back(
          at::zeros({num_blocks, spec.kv_heads * padded_head_dim(spec) * ops::kKvBlock}, type));
    }
    pools_.push_back({storage_[storage_.size() - 2].data_ptr(), storage_.back().data_ptr(), dtype});
  }
}

int64_t KvCache::bytes_per_block(const ModelSpec& spec, ops::DType dtype) {
  const int64_t element = dtype == ops::DType::kBF16 ? 2 : 4;
  return spec.layers * 2 * spec.kv_heads * padded_head_dim(spec) * ops::kKvBlock * element;
}

Model::Model(ModelSpec spec, ops::DType dtype)
    : spec_(std::move(spec)), dtype_(dtype), rope_(padded_inv_freq(spec_)) {
  KEEL_REQUIRE(
      spec_.hidden % 8 == 0 && spec_.intermediate % 8 == 0 && spec_.moe.intermediate % 8 == 0,
      "[config.json] expected hidden and intermediate sizes that are multiples of 8, got {} and {}",
      spec_.hidden, spec_.intermediate);
  // Its sums split by thread count, and its waiting threads spin on the cores of compute_pool().
  at::set_num_threads(1);
  embedding_ = add(std::make_unique<Parameter>("embed_tokens", spec_.vocab, spec_.hidden, dtype));
  for (int64_t i = 0; i < spec_.layers; ++i) add_layer(i);
  final_norm_ = add(std::make_unique<Parameter>("norm", spec_.hidden, 0, dtype));
  head_ = spec_.tied
              ? embedding_
              : add(std::make_unique<Parameter>("lm_head", spec_.vocab, spec_.hidden, dtype));
}

Model::~Model() = default;

Parameter* Model::add(std::unique_ptr<Parameter> parameter) {
  owned_.push_back(std::move(parameter));
  parameters_.push_back(owned_.back().get());
  return parameters_.back();
}

void Model::add_layer(int64_t index) {
  const auto make = [&](const char* name, int64_t n, int64_t k, int64_t count = 1) {
    return add(
        std::make_unique<Parameter>(fmt::format("layers.{}.{}", index, name), n, k, dtype_, count));
  };
  const ModelSpec& s = spec_;
  const int64_t head = padded_head_dim(s), q_size = s.heads * head, kv_size = s.kv_heads * head;
  Layer l;
  l.input_norm = make("input_norm", s.hidden, 0);
  l.qkv = make("qkv", q_size + 2 * kv_size, s.hidden);
  if (s.qkv_bias) l.qkv_bias = make("qkv_bias", q_size + 2 * kv_size, 0);
  if (s.qk_norm) {
    l.q_norm = make("q_norm", head, 0);
    l.k_norm = make("k_norm", head, 0);
  }
  l.o = make("o", s.hidden, q_size);
  l.post_norm = make("post_norm", s.hidden, 0);
  if (s.is_moe_layer(index)) {
    l.router = make("router", s.moe.num_experts, s.hidden);
    l.gate_up = make("experts.gate_up", 2 * s.moe.intermediate, s.hidden, s.moe.num_experts);
    l.down = make("experts.down", s.hidden, s.moe.intermediate, s.moe.num_experts);
  } else {
    l.gate_up = make("gate_up", 2 * s.intermediate, s.hidden);
    l.down = make("down", s.hidden, s.intermediate);
  }
  layers_.push_back(l);
}

at::Tensor Model::forward(std::span<const int32_t> tokens, const ForwardContext& context) {
  at::Tensor x = embed(tokens);
  for (int64_t i = 0; i < spec_.layers; ++i) x = block(i, x, context);
  return final_norm(x);
}

ops::AttentionShape Model::attention_shape() const {
  return {.num_heads = static_cast<int>(spec_.heads),
          .num_kv_heads = static_cast<int>(spec_.kv_heads),
          .head_dim = static_cast<int>(padded_head_dim(spec_)),
          .scale = 1.0f / std::sqrt(static_cast<float>(spec_.head_dim)),
          .round_bf16 = round_bf16()};
}

at::Tensor Model::embed(std::span<const int32_t> tokens) {
  return ops::embedding(*embedding_, tokens);
}

at::Tensor Model::block(int64_t layer, const at::Tensor& x, const ForwardContext& context) {
  const Layer& l = layers_[static_cast<size_t>(layer)];
  ops::AttentionLayer attention;
  attention.shape = attention_shape();
  attention.rope = {.num_heads = attention.shape.num_heads,
                    .num_kv_heads = attention.shape.num_kv_heads,
                    .head_dim = attention.shape.head_dim,
                    .norm_dim = static_cast<int>(spec_.head_dim),
                    .norm_eps = static_cast<float>(spec_.rms_eps),
                    .round_bf16 = round_bf16()};
  attention.table = &rope_;
  attention.q_norm = l.q_norm;
  attention.k_norm = l.k_norm;
  std::optional<ops::KvPool> pool;
  if (context.cache != nullptr) pool = context.cache->pool(layer);

  const auto normed = ops::rms_norm(x, *l.input_norm, spec_.rms_eps, round_bf16());
  const auto qkv = ops::linear(normed, *l.qkv, l.qkv_bias, {}, round_bf16());
  const auto mixed = ops::attention(qkv, attention, context.plan, pool ? &*pool : nullptr);
  return mlp(l, ops::linear(mixed, *l.o, nullptr, x, round_bf16()));
}

at::Tensor Model::mlp(const Layer& l, const at::Tensor& x) {
  const auto normed = ops::rms_norm(x, *l.post_norm, spec_.rms_eps, round_bf16());
  if (l.router != nullptr) {
    const ops::MoeLayer moe{l.router, l.gate_up, l.down, static_cast<int>(spec_.moe.top_k),
                            spec_.moe.norm_topk_prob};
    return ops::moe(normed, moe, x, round_bf16());
  }
  const auto gate_up = ops::linear(normed, *l.gate_up, nullptr, {}, round_bf16());
  return ops::linear(ops::swiglu(gate_up, round_bf16()), *l.down, nullptr, x, round_bf16());
}

at::Tensor Model::final_norm(const at::Tensor& x) {
  return ops::rms_norm(x, *final_norm_, spec_.rms_eps, round_bf16());
}

ops::Parameter& Model::head() { return *head_; }

Model::Place Model::place(const ParamSpec& p) const {
  const auto at = [&]() -> const Layer& { return layers_[static_cast<size_t>(p.layer)]; };
  const int64_t head = padded_head_dim(spec_), q = spec_.heads * head, kv = spec_.kv_heads * head;
  switch (p.role) {
    case ParamRole::kEmbedding:
      return {embedding_, 0};
    case ParamRole::kFinalNorm:
      return {final_norm_, 0};
    case ParamRole::kHead:
      return {head_, 0};
    case ParamRole::kInputNorm:
      return {at().input_norm, 0};
    case ParamRole::kQ:
      return {at().qkv, 0};
    case ParamRole::kK:
      return {at().qkv, q};
    case ParamRole::kV:
      return {at().qkv, q + kv};
    case ParamRole::kQBias:
      return {at().qkv_bias, 0};
    case ParamRole::kKBias:
      return {at().qkv_bias, q};
    case ParamRole::kVBias:
      return {at().qkv_bias, q + kv};
    case ParamRole::kQNorm:
      return {at().q_norm, 0};
    case ParamRole::kKNorm:
      return {at().k_norm, 0};
    case ParamRole::kO:
      return {at().o, 0};
    case ParamRole::kPostAttentionNorm:
      return {at().post_norm, 0};
    case ParamRole::kGate:
      return {at().gate_up, 0};
    case ParamRole::kUp:
      return {at().gate_up, spec_.intermediate};
    case ParamRole::kDown:
      return {at().down, 0};
    case ParamRole::kRouter:
      return {at().router, 0};
    case ParamRole::kExpertGateUp:
      return {at().gate_up, 0};
    case ParamRole::kExpertDown:
      return {at().down, 0};
  }
  KEEL_CHECK(false, "role {}", static_cast<int>(p.role));
}

void Model::make_trainable() {
  for (Parameter* p : parameters_) p->make_trainable();
}

void Model::publish() {
  for (Parameter* p : parameters_) p->publish();
  ++version_;
}

}  // namespace keel::model
