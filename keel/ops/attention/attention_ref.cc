#include "keel/ops/attention/attention_ref.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

namespace keel::ops {
namespace {

double round_bf16(double x) {
  const auto u = std::bit_cast<uint32_t>(static_cast<float>(x));
  return std::bit_cast<float>((u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000u);
}

// One query row of one head: where its operands lie.
struct Row {
  const AttentionShape& shape;
  const AttentionSequence& sequence;
  int kv_head;
  int num_keys;

  int64_t block(int key) const {
    return (sequence.blocks[key / kKvBlock] * int64_t{shape.num_kv_heads} + kv_head) * kKvBlock *
           shape.head_dim;
  }
  int64_t k(int key, int i) const { return block(key) + i * kKvBlock + key % kKvBlock; }
  int64_t v(int key, int i) const { return block(key) + key % kKvBlock * shape.head_dim + i; }
};

// f(row of the batch, head, Row)
template <class F>
void for_rows(const AttentionShape& shape, std::span<const AttentionSequence> sequences, F&& f) {
  const int group = shape.num_heads / shape.num_kv_heads;
  for (const AttentionSequence& s : sequences)
    for (int r = 0; r < s.num_rows; ++r)
      for (int h = 0; h < shape.num_heads; ++h)
        f(s.row + r, h, Row{shape, s, h / group, s.first_position + r + 1});
}

// Scaled scores of a row and their log-sum-exp.
double scores_of(const Row& row, const double* q, const double* k_pool, std::vector<double>& s) {
  s.assign(row.num_keys, 0.0);
  for (int j = 0; j < row.num_keys; ++j) {
    for (int i = 0; i < row.shape.head_dim; ++i) s[j] += q[i] * k_pool[row.k(j, i)];
    s[j] *= row.shape.scale;
  }
  const double top = *std::max_element(s.begin(), s.end());
  double sum = 0;
  for (double x : s) sum += std::exp(x - top);
  return top + std::log(sum);
}

}  // namespace

void attention_forward_ref(const AttentionShape& shape, const double* q, const double* k_pool,
                           const double* v_pool, std::span<const AttentionSequence> sequences,
                           double* out, double* lse) {
  std::vector<double> s;
  const int d = shape.head_dim;
  for_rows(shape, sequences, [&](int64_t r, int h, const Row& row) {
    const int64_t at = (r * shape.num_heads + h) * d;
    const double total = scores_of(row, q + at, k_pool, s);
    lse[r * shape.num_heads + h] = total;
    std::fill_n(out + at, d, 0.0);
    for (int begin = 0; begin < row.num_keys; begin += kKvSplit) {
      const int end = std::min(row.num_keys, begin + kKvSplit);
      const double top = *std::max_element(s.begin() + begin, s.begin() + end);
      for (int j = begin; j < end; ++j) {
        double p = std::exp(s[j] - top);
        if (shape.round_bf16) p = round_bf16(p);
        p *= std::exp(top - total);
        for (int i = 0; i < d; ++i) out[at + i] += p * v_pool[row.v(j, i)];
      }
    }
    if (shape.round_bf16)
      for (int i = 0; i < d; ++i) out[at + i] = round_bf16(out[at + i]);
  });
}

void attention_backward_ref(const AttentionShape& shape, const double* q, const double* k_pool,
                            const double* v_pool, std::span<const AttentionSequence> sequences,
                            const double* dout, double* dq, double* dk_pool, double* dv_pool) {
  std::vector<double> s, dp;
  const int d = shape.head_dim;
  for_rows(shape, sequences, [&](int64_t r, int h, const Row& row) {
    const int64_t at = (r * shape.num_heads + h) * d;
    const double total = scores_of(row, q + at, k_pool, s);
    double delta = 0;
    dp.assign(row.num_keys, 0.0);
    for (int j = 0; j < row.num_keys; ++j) {
      for (int i = 0; i < d; ++i) dp[j] += dout[at + i] * v_pool[row.v(j, i)];
      delta += std::exp(s[j] - total) * dp[j];
    }
    std::fill_n(dq + at, d, 0.0);
    for (int j = 0; j < row.num_keys; ++j) {
      const double p = std::exp(s[j] - total);
      const double ds = shape.scale * p * (dp[j] - delta);
      for (int i = 0; i < d; ++i) {
        dq[at + i] += ds * k_pool[row.k(j, i)];
        dk_pool[row.v(j, i)] += ds * q[at + i];
        dv_pool[row.v(j, i)] += p * dout[at + i];
      }
    }
  });
}

}  // namespace keel::ops
