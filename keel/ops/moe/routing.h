// Router of a mixture of experts: softmax, top-k and the sorting of rows by expert. Plain f32 on
// the host.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace keel::ops {

struct Routing {
  int64_t tokens = 0;
  int top_k = 0;
  std::vector<float> probs;      // [tokens, experts] softmax of the logits
  std::vector<int32_t> expert;   // [tokens, top_k], ascending expert id within a token
  std::vector<float> weight;     // [tokens, top_k], as applied (renormalised, rounded)
  std::vector<int64_t> offsets;  // [experts + 1]: rows of each expert in the sorted order
  std::vector<int64_t>
      sorted_row;                 // [tokens, top_k]: where (token, choice) lies in the sorted order
  std::vector<int64_t> token_of;  // [tokens * top_k]: token of each sorted row
};

// logits: [tokens, experts]. Ties go to the lower expert id. norm: chosen weights are divided by
// their sum.
Routing route(std::span<const float> logits, int64_t tokens, int experts, int top_k, bool norm,
              bool round_bf16);

// Gradient of the logits from that of the applied weights ([tokens, top_k]).
std::vector<float> route_backward(const Routing& routing, std::span<const float> d_weight,
                                  int experts, bool norm);

}  // namespace keel::ops
