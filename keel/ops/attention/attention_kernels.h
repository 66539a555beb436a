// Causal attention over blocks of 16 positions. One kernel family serves training (packed, with
// shared prefixes), prefill, chunked prefill and decode, and gives the same bits in all of them.
//
// Keys and values live in pools of blocks. Block b holds 16 consecutive positions of one sequence,
// for all kv heads:
//   k_pool: [blocks][kv_heads][head_dim][16]   v_pool: [blocks][kv_heads][16][head_dim]
// The positions of a sequence are the concatenation of its block list; block 0 is the null block
// (garbage, never read by a result). In training the pool is built per layer by kv_scatter; in
// rollout it is the paged cache.
//
// Numerics: q.k runs over head_dim in order in f32; keys are cut into splits of kKvSplit positions
// at absolute positions; a split has its own max, sum and P.V started from zero (keys after the
// row's position are selected away); splits are merged in order, per row. A split's sum stays in 16
// lanes (lane i: keys i, i + 16, ...) until the last split is merged. The bits of an output row
// depend on its query, its position and the keys and values of its sequence, on nothing else.
// Slots after a sequence's last position may hold anything, NaN included. In bf16 models q, k, v
// hold bf16 values, P is rounded to bf16 before P.V and the output is rounded. Softmax follows
// Milakov and Gimelshein (2018), tiling Dao et al. (2022).
#pragma once

#include <cstdint>
#include <span>

#include "keel/ops/packed.h"

namespace keel::ops {

inline constexpr int kKvBlock = 16;
inline constexpr int kKvSplit = 64;

struct AttentionShape {
  int num_heads = 0;  // query heads, a multiple of num_kv_heads
  int num_kv_heads = 0;
  int head_dim = 0;    // a multiple of 8, <= 256
  float scale = 1.0f;  // usually 1/sqrt(head_dim)
  bool round_bf16 = false;
};

// Query rows [row, row + num_rows) of the batch at positions first_position, first_position + 1,
// ... They see positions 0..own position of the sequence whose blocks are listed.
struct AttentionSequence {
  int64_t row = 0;
  int32_t num_rows = 0;
  int32_t first_position = 0;
  const int32_t* blocks = nullptr;  // ceil((first_position + num_rows) / 16) ids
};

// One row of K or V that goes to (or comes from) a slot of a block.
struct KvSlot {
  int64_t row = 0;  // row of the batch
  int32_t block = 0;
  int32_t slot = 0;  // 0..15
};

// Pool element type: f32, or bf16 for bf16 models (lossless there, half the memory).
struct KvPool {
  void* k = nullptr;
  void* v = nullptr;
  DType dtype = DType::kF32;
};

// Copies k and v rows ([rows, kv_heads * head_dim], leading dimension ld) into their slots.
void kv_scatter(const AttentionShape& shape, const float* k, const float* v, int64_t ld,
                std::span<const KvSlot> slots, const KvPool& pool);

// Copies whole blocks inside a pool (copy on write of a partly filled shared block).
void kv_copy_block(const AttentionShape& shape, const KvPool& pool, int32_t from, int32_t to);

// q: [rows, num_heads * head_dim] with leading dimension ldq; out likewise with ldo.
// lse: [rows, num_heads] log-sum-exp of the scaled scores (may be null when no backward follows).
void attention_forward(const AttentionShape& shape, const float* q, int64_t ldq, const KvPool& pool,
                       std::span<const AttentionSequence> sequences, float* out, int64_t ldo,
                       float* lse);

// Needs f32 pools. dq is overwritten (dq rows are batch-invariant as outputs are); dk_pool and
// dv_pool (f32, v-like layout [blocks][kv_heads][16][head_dim] for both) are overwritten for every
// block that a sequence lists. A block shared by several sequences receives the sum over them in an
// order that depends on the block lists only, not on threads. Roundings to bf16 are passed through.
// Memory: three copies of q and about 0.3 MB for each thread.
void attention_backward(const AttentionShape& shape, const float* q, int64_t ldq,
                        const KvPool& pool, std::span<const AttentionSequence> sequences,
                        const float* out, int64_t ldo, const float* lse, const float* dout,
                        int64_t lddo, float* dq, int64_t lddq, float* dk_pool, float* dv_pool);

// dk[row] and dv[row] += the slots' gradients, in the order of `slots` (a prefix row copied into
// several blocks gets one addition for each).
void kv_gather_grad(const AttentionShape& shape, const float* dk_pool, const float* dv_pool,
                    std::span<const KvSlot> slots, float* dk, float* dv, int64_t ld);

}  // namespace keel::ops
