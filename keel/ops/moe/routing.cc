#include "keel/ops/moe/routing.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "keel/base/error.h"
#include "keel/ops/packed.h"

namespace keel::ops {
namespace {

void softmax_row(const float* logits, int experts, float* probs) {
  const float top = *std::max_element(logits, logits + experts);
  float sum = 0;
  for (int e = 0; e < experts; ++e) sum += probs[e] = std::exp(logits[e] - top);
  for (int e = 0; e < experts; ++e) probs[e] /= sum;
}

// The top_k largest of probs, lower id first on ties, then ascending by id.
void choose(const float* probs, int experts, int top_k, int32_t* chosen) {
  std::vector<int32_t> ids(static_cast<size_t>(experts));
  for (int e = 0; e < experts; ++e) ids[static_cast<size_t>(e)] = e;
  std::partial_sort(ids.begin(), ids.begin() + top_k, ids.end(), [&](int32_t a, int32_t b) {
    return probs[a] != probs[b] ? probs[a] > probs[b] : a < b;
  });
  std::copy_n(ids.begin(), top_k, chosen);
  std::sort(chosen, chosen + top_k);
}

void sort_by_expert(Routing& r, int experts) {
  r.offsets.assign(static_cast<size_t>(experts) + 1, 0);
  for (const int32_t e : r.expert) ++r.offsets[static_cast<size_t>(e) + 1];
  for (int e = 0; e < experts; ++e)
    r.offsets[static_cast<size_t>(e) + 1] += r.offsets[static_cast<size_t>(e)];
  auto next = r.offsets;
  r.sorted_row.resize(r.expert.size());
  r.token_of.resize(r.expert.size());
  for (size_t i = 0; i < r.expert.size(); ++i) {
    const int64_t row = next[static_cast<size_t>(r.expert[i])]++;
    r.sorted_row[i] = row;
    r.token_of[static_cast<size_t>(row)] = static_cast<int64_t>(i) / r.top_k;
  }
}

}  // namespace

Routing route(std::span<const float> logits, int64_t tokens, int experts, int top_k, bool norm,
              bool round_bf16) {
  KEEL_CHECK(std::ssize(logits) == tokens * experts && top_k <= experts, "{} logits",
             logits.size());
  Routing r;
  r.tokens = tokens;
  r.top_k = top_k;
  r.probs.resize(logits.size());
  r.expert.resize(static_cast<size_t>(tokens * top_k));
  r.weight.resize(r.expert.size());
  for (int64_t t = 0; t < tokens; ++t) {
    float* probs = r.probs.data() + t * experts;
    int32_t* chosen = r.expert.data() + t * top_k;
    float* weight = r.weight.data() + t * top_k;
    softmax_row(logits.data() + t * experts, experts, probs);
    choose(probs, experts, top_k, chosen);
    float sum = 0;
    for (int i = 0; i < top_k; ++i) sum += weight[i] = probs[chosen[i]];
    for (int i = 0; i < top_k; ++i) {
      if (norm) weight[i] /= sum;
      if (round_bf16) weight[i] = round_to_bf16(weight[i]);
    }
  }
  sort_by_expert(r, experts);
  return r;
}

std::vector<float> route_backward(const Routing& r, std::span<const float> d_weight, int experts,
                                  bool norm) {
  std::vector<float> d_logits(static_cast<size_t>(r.tokens * experts), 0.0f);
  for (int64_t t = 0; t < r.tokens; ++t) {
    const float* probs = r.probs.data() + t * experts;
    const int32_t* chosen = r.expert.data() + t * r.top_k;
    const float* dw = d_weight.data() + t * r.top_k;
    // d loss / d prob of the chosen experts, then softmax backward over all experts.
    float sum = 0, dot = 0;
    for (int i = 0; i < r.top_k; ++i) {
      sum += probs[chosen[i]];
      dot += dw[i] * probs[chosen[i]];
    }
    float* out = d_logits.data() + t * experts;
    for (int i = 0; i < r.top_k; ++i) {
      out[chosen[i]] = norm ? (dw[i] - dot / sum) / sum : dw[i];
    }
    float inner = 0;
    for (int i = 0; i < r.top_k; ++i) inner += out[chosen[i]] * probs[chosen[i]];
    for (int e = 0; e < experts; ++e) out[e] = probs[e] * (out[e] - inner);
  }
  return d_logits;
}

}  // namespace keel::ops
