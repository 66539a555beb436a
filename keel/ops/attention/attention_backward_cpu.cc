#include "keel/ops/attention/attention_pass.h"
#include "keel/ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "keel/ops/attention/attention_backward_cpu.cc"  // NOLINT
#include <hwy/foreach_target.h>                                            // IWYU pragma: keep
// After foreach_target.h:
#include "keel/ops/attention/attention-inl.h"

#include <hwy/aligned_allocator.h>

#include <memory>
#include <thread>
#include <vector>

#include "keel/base/error.h"
#include "keel/base/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace keel::ops::HWY_NAMESPACE {
namespace {

constexpr int kSplitBlocks = BackwardGroup::kMaxBlocks;

// out[c][r] = in[r][c]; rows and columns are multiples of 4.
void transpose(const float* in, size_t ld_in, size_t rows, size_t cols, float* out, size_t ld_out) {
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<float, 4> d;
  for (size_t r = 0; r < rows; r += 4) {
    for (size_t c = 0; c < cols; c += 4) {
      const float* const p = in + r * ld_in + c;
      const auto x0 = hn::LoadU(d, p);
      const auto x1 = hn::LoadU(d, p + ld_in);
      const auto x2 = hn::LoadU(d, p + 2 * ld_in);
      const auto x3 = hn::LoadU(d, p + 3 * ld_in);
      const auto even_low = hn::InterleaveLower(d, x0, x2);
      const auto even_high = hn::InterleaveUpper(d, x0, x2);
      const auto odd_low = hn::InterleaveLower(d, x1, x3);
      const auto odd_high = hn::InterleaveUpper(d, x1, x3);
      float* const o = out + c * ld_out + r;
      hn::StoreU(hn::InterleaveLower(d, even_low, odd_low), d, o);
      hn::StoreU(hn::InterleaveUpper(d, even_low, odd_low), d, o + ld_out);
      hn::StoreU(hn::InterleaveLower(d, even_high, odd_high), d, o + 2 * ld_out);
      hn::StoreU(hn::InterleaveUpper(d, even_high, odd_high), d, o + 3 * ld_out);
    }
  }
#else
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < cols; ++c) out[c * ld_out + r] = in[r * ld_in + c];
#endif
}

// acc[key][col] += sum over vectors of w[vector][key] * x[vector][col], kRows keys at once.
template <size_t kRows>
HWY_NOINLINE void add_products(const float* w, const float* x, size_t num_vecs, size_t head_dim,
                               float* acc) {
  for_columns<kRows>(head_dim, [&](auto d, auto vecs, size_t col) KEEL_INLINE_LAMBDA {
    constexpr size_t kV = decltype(vecs)::value;
    constexpr std::make_index_sequence<kRows * kV> kAll;
    using V = hn::Vec<decltype(d)>;
    V c[kRows * kV];
    tile_zero(d, c, kAll);
    const float* const base = x + col;
    tile_run<kRows, kV, kV>(d, TileA{w, 1, kKvSplit}, &base, head_dim, num_vecs, c);
    tile_each<kV>(
        c,
        [&](size_t r, size_t n, V sum) KEEL_INLINE_LAMBDA {
          float* const to = acc + r * head_dim + col + n * hn::MaxLanes(d);
          hn::StoreU(hn::Add(hn::LoadU(d, to), sum), d, to);
        },
        kAll);
  });
}

// s: scores, dp: products of dout and values, of one query vector; the first num_keys of 64 count.
// s becomes P, dp becomes scale * P * (dp - delta); the rest becomes zero.
HWY_INLINE void softmax_grad_row(float* s, float* dp, size_t num_keys, float scale, float lse,
                                 float delta) {
  const F32 d;
  const auto factor = hn::Set(d, scale);
  const auto minus = hn::Set(d, lse);
  const auto mean = hn::Set(d, delta);
  const auto limit = hn::Set(d, static_cast<float>(num_keys));
  size_t i = 0;
  for (; i < num_keys; i += kLanes) {
    auto p = exp_f32(hn::MulSub(hn::LoadU(d, s + i), factor, minus));
    auto ds = hn::Mul(hn::Mul(p, factor), hn::Sub(hn::LoadU(d, dp + i), mean));
    if (i + kLanes > num_keys) {
      const auto valid = hn::Lt(hn::Iota(d, static_cast<float>(i)), limit);
      p = hn::IfThenElseZero(valid, p);
      ds = hn::IfThenElseZero(valid, ds);
    }
    hn::StoreU(p, d, s + i);
    hn::StoreU(ds, d, dp + i);
  }
  for (; i < kKvSplit; i += kLanes) {
    hn::StoreU(hn::Zero(d), d, s + i);
    hn::StoreU(hn::Zero(d), d, dp + i);
  }
}

void wait_until(const std::atomic<int>& counter, int value) {
  for (int spins = 0; counter.load(std::memory_order_acquire) != value; ++spins)
    if (spins > 1000) std::this_thread::yield();
}

class BackwardKernel {
 public:
  BackwardKernel(const BackwardPass& pass, const BackwardGroup& group, int kv_head)
      : pass_(pass), group_(group), kv_head_(kv_head) {
    head_dim_ = pass.shape.head_dim;
    heads_ = pass.shape.num_heads / pass.shape.num_kv_heads;
    const size_t block_vecs = pass.plan->rows_per_block * heads_;
    const size_t keys = kKvSplit * head_dim_;
    float* p = attention_scratch(3 * keys + panel_floats(head_dim_) + 2 * block_vecs * kKvSplit);
    const auto take = [&](size_t n) { return std::exchange(p, p + n); };
    dk_ = take(keys);
    dv_ = take(keys);
    v_columns_ = take(keys);
    k_panels_ = take(panel_floats(head_dim_));
    p_ = take(block_vecs * kKvSplit);
    ds_ = take(block_vecs * kKvSplit);
  }

  void run() {
    load_keys();
    std::fill_n(dk_, 2 * kKvSplit * head_dim_, 0.0f);
    const BackwardPlan& plan = *pass_.plan;
    for (int m = group_.member_begin; m < group_.member_end; ++m) {
      index_ = plan.members[m];
      sequence_ = &pass_.sequences[index_];
      start_ = group_.split * kKvSplit - sequence_->first_position;
      const int first = std::max(0, start_) / plan.rows_per_block;
      for (int b = first; b * plan.rows_per_block < sequence_->num_rows; ++b) row_block(b);
    }
    add_to_pools();
  }

 private:
  // Offset of a block's data in the pools and in the gradients' pools.
  int64_t at(int j) const {
    return (int64_t{group_.blocks[j]} * pass_.shape.num_kv_heads + kv_head_) *
           static_cast<int64_t>(kKvBlock * head_dim_);
  }

  void load_keys() {
    for (int j = 0; j < group_.num_blocks; ++j) {
      const float* const v = static_cast<const float*>(pass_.pool.v) + at(j);
      float* const columns = v_columns_ + j * kKvBlock * head_dim_;
      k_[j] = static_cast<const float*>(pass_.pool.k) + at(j);
      v_column_blocks_[j] = columns;
      transpose(v, head_dim_, kKvBlock, head_dim_, columns, kKvBlock);
      for (size_t col = 0; col < head_dim_; col += 16)
        transpose(k_[j] + col * kKvBlock, kKvBlock, std::min<size_t>(16, head_dim_ - col), kKvBlock,
                  k_panels_ + col * kKvSplit + j * kKvBlock * 16, 16);
    }
  }

  // Row block `index` of the sequence, from the first row that sees the split.
  void row_block(int index) {
    const int rows = pass_.plan->rows_per_block;
    const int row_end = std::min(sequence_->num_rows, (index + 1) * rows);
    row_begin_ = std::max(index * rows, start_);
    vecs_ = (row_end - row_begin_) * heads_;
    vector_ = pass_.vector_at(kv_head_, index_, row_begin_);
    q_ = pass_.packed_q + vector_ * head_dim_;
    dout_ = pass_.packed_dout + vector_ * head_dim_;
    for_tiles([&](auto r, size_t v) KEEL_INLINE_LAMBDA { score_rows<decltype(r)::value>(v); });
    const int64_t counter =
        (pass_.plan->first_row_block[index_] + index) * pass_.shape.num_kv_heads + kv_head_;
    wait_until(pass_.splits_done[counter], group_.split);
    for (size_t col = 0; col < head_dim_; col += 16)
      for_tiles([&](auto r, size_t v)
                    KEEL_INLINE_LAMBDA { query_rows<decltype(r)::value>(v, col); });
    const int last_position = sequence_->first_position + row_end - 1;
    if (last_position / kKvSplit == group_.split) unpack_query_grad(index * rows, row_end);
    pass_.splits_done[counter].store(group_.split + 1, std::memory_order_release);
    key_rows();
  }

  void unpack_query_grad(int row_begin, int row_end) const {
    const float* from = pass_.packed_dq + pass_.vector_at(kv_head_, index_, row_begin) * head_dim_;
    const size_t width = heads_ * head_dim_;
    for (int row = row_begin; row < row_end; ++row, from += width)
      std::copy_n(from, width, pass_.dq + (sequence_->row + row) * pass_.lddq + kv_head_ * width);
  }

  int row_of(size_t v) const { return row_begin_ + static_cast<int>(v / heads_); }
  size_t keys_of(size_t v) const { return std::min(kKvSplit, row_of(v) - start_ + 1); }

  template <class F>
  HWY_INLINE void for_tiles(F&& f) {
    for (size_t v = 0, rows; v < vecs_; v += rows) {
      rows = tile_rows(vecs_ - v);
      with_tile_rows(rows, [&](auto r) KEEL_INLINE_LAMBDA { f(r, v); });
    }
  }

  template <size_t kRows>
  HWY_NOINLINE void score_rows(size_t v) {
    const size_t num_blocks = (keys_of(v + kRows - 1) + kKvBlock - 1) / kKvBlock;
    float* const s = p_ + v * kKvSplit;
    float* const dp = ds_ + v * kKvSplit;
    score_tile<kRows>(q_ + v * head_dim_, head_dim_, k_, num_blocks, s);
    score_tile<kRows>(dout_ + v * head_dim_, head_dim_, v_column_blocks_, num_blocks, dp);
    for (size_t r = 0; r < kRows; ++r)
      softmax_grad_row(s + r * kKvSplit, dp + r * kKvSplit, keys_of(v + r), pass_.shape.scale,
                       pass_.packed_lse[vector_ + v + r], pass_.packed_delta[vector_ + v + r]);
  }

  // dq (+)= dS K; the first split overwrites.
  template <size_t kRows>
  HWY_NOINLINE void query_rows(size_t v, size_t col) {
    float* const to = pass_.packed_dq + (vector_ + v) * head_dim_;
    const bool first = group_.split == 0;
    panel_tile<kRows>(ds_ + v * kKvSplit, keys_of(v + kRows - 1), k_panels_, head_dim_, col,
                      [&](auto d, size_t r, size_t c, auto sum) KEEL_INLINE_LAMBDA {
                        float* const o = to + r * head_dim_ + c;
                        hn::StoreU(first ? sum : hn::Add(hn::LoadU(d, o), sum), d, o);
                      });
  }

  // dv += P^T dout, dk += dS^T q, for the keys that some row of the block sees.
  void key_rows() {
    const size_t keys = keys_of(vecs_ - 1);
    for (size_t key = 0, rows; key < keys; key += rows) {
      rows = tile_rows(keys - key);
      // The next row block follows in the packed arrays; bring it near bit by bit.
      const size_t from = (vecs_ + key * vecs_ / kKvSplit) * head_dim_;
      for (size_t i = 0; i < rows * vecs_ * head_dim_ / kKvSplit; i += 16) {
        __builtin_prefetch(q_ + from + i, 0, 2);
        __builtin_prefetch(dout_ + from + i, 0, 2);
      }
      // Rows before the first that sees `key` hold zeros.
      const int hidden_rows = static_cast<int>(key) + start_ - row_begin_;
      const size_t skip = std::max(0, hidden_rows) * heads_;
      with_tile_rows(rows, [&](auto r) KEEL_INLINE_LAMBDA {
        constexpr size_t kRows = decltype(r)::value;
        add_products<kRows>(p_ + skip * kKvSplit + key, dout_ + skip * head_dim_, vecs_ - skip,
                            head_dim_, dv_ + key * head_dim_);
        add_products<kRows>(ds_ + skip * kKvSplit + key, q_ + skip * head_dim_, vecs_ - skip,
                            head_dim_, dk_ + key * head_dim_);
      });
    }
  }

  void add_to_pools() {
    const size_t n = kKvBlock * head_dim_;
    for (int j = 0; j < group_.num_blocks; ++j) {
      auto& done =
          pass_.groups_done[int64_t{group_.blocks[j]} * pass_.shape.num_kv_heads + kv_head_];
      wait_until(done, group_.turn[j]);
      add_block(dk_ + j * n, pass_.dk_pool + at(j), group_.turn[j] == 0);
      add_block(dv_ + j * n, pass_.dv_pool + at(j), group_.turn[j] == 0);
      done.store(group_.turn[j] + 1, std::memory_order_release);
    }
  }

  void add_block(const float* from, float* to, bool overwrite) const {
    const size_t n = kKvBlock * head_dim_;
    if (overwrite) {
      std::copy_n(from, n, to);
    } else {
      for (size_t i = 0; i < n; ++i) to[i] += from[i];
    }
  }

  const BackwardPass& pass_;
  const BackwardGroup& group_;
  const int kv_head_;
  size_t head_dim_, heads_;
  int index_ = 0;  // of the sequence at work
  const AttentionSequence* sequence_ = nullptr;
  int start_ = 0;  // the sequence's row (may be negative) at the split's first position
  int row_begin_ = 0;
  size_t vecs_ = 0;
  const float* k_[kSplitBlocks];  // [head_dim][16], the pool's own
  const float* v_column_blocks_[kSplitBlocks];
  int64_t vector_ = 0;  // of the row block, in the packed arrays
  const float* q_ = nullptr;
  const float* dout_ = nullptr;
  float *dk_, *dv_, *v_columns_, *k_panels_, *p_, *ds_;
};

void backward_unit(const BackwardPass& pass, int64_t unit) {
  const int heads = pass.shape.num_kv_heads;
  BackwardKernel(pass, pass.plan->groups[unit / heads], static_cast<int>(unit % heads)).run();
}

// Sum of x * y over head_dim: 8 lanes, then a fixed tree.
float dot(const float* x, const float* y, size_t head_dim) {
  const Half d;
  float lanes[8] = {};
  for (size_t n = 0; n < 8; n += hn::MaxLanes(d)) {
    auto sum = hn::Zero(d);
    for (size_t i = n; i < head_dim; i += 8)
      sum = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), sum);
    hn::StoreU(sum, d, lanes + n);
  }
  return lane_tree_8(lanes);
}

// Packs one row block (of all sequences together).
void pack_rows(const BackwardPass& pass, int64_t block) {
  const auto& first = pass.plan->first_row_block;
  const auto index =
      static_cast<int>(std::upper_bound(first.begin(), first.end(), block) - first.begin() - 1);
  const AttentionSequence& s = pass.sequences[index];
  const int rows = pass.plan->rows_per_block;
  const auto begin = static_cast<int>(block - first[index]) * rows;
  const size_t head_dim = pass.shape.head_dim;
  const int heads = pass.shape.num_heads / pass.shape.num_kv_heads;
  for (int row = begin; row < std::min(s.num_rows, begin + rows); ++row) {
    for (int h = 0; h < pass.shape.num_heads; ++h) {
      const int64_t to = pass.vector_at(h / heads, index, row) + h % heads;
      const int64_t col = h * static_cast<int64_t>(head_dim);
      const float* const dout = pass.dout + (s.row + row) * pass.lddo + col;
      std::copy_n(pass.q + (s.row + row) * pass.ldq + col, head_dim, pass.packed_q + to * head_dim);
      std::copy_n(dout, head_dim, pass.packed_dout + to * head_dim);
      pass.packed_lse[to] = pass.lse[(s.row + row) * pass.shape.num_heads + h];
      pass.packed_delta[to] = dot(pass.out + (s.row + row) * pass.ldo + col, dout, head_dim);
    }
  }
}

}  // namespace
}  // namespace keel::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keel::ops {
namespace {
HWY_EXPORT(backward_unit);
HWY_EXPORT(pack_rows);
}  // namespace

void attention_backward(const AttentionShape& shape, const float* q, int64_t ldq,
                        const KvPool& pool, std::span<const AttentionSequence> sequences,
                        const float* out, int64_t ldo, const float* lse, const float* dout,
                        int64_t lddo, float* dq, int64_t lddq, float* dk_pool, float* dv_pool) {
  check_attention_shape(shape);
  KEEL_CHECK(pool.dtype == DType::kF32, "backward needs f32 pools");
  const BackwardPlan plan = plan_backward(shape, sequences);
  std::vector<int64_t> first_row;
  int64_t rows = 0;
  for (const AttentionSequence& s : sequences) {
    first_row.push_back(rows);
    rows += s.num_rows;
  }
  const auto counters = [&](int64_t n) {
    return std::make_unique<std::atomic<int>[]>(n * shape.num_kv_heads);
  };
  const auto splits_done = counters(plan.first_row_block.back());
  const auto groups_done = counters(plan.num_pool_blocks);
  const int64_t vectors = rows * shape.num_heads, values = vectors * shape.head_dim;
  const auto packed = hwy::AllocateAligned<float>(3 * values + 2 * vectors);
  KEEL_CHECK(packed != nullptr, "no memory for {} query vectors", vectors);

  BackwardPass pass = {shape,
                       q,
                       ldq,
                       pool,
                       sequences,
                       out,
                       ldo,
                       lse,
                       dout,
                       lddo,
                       dq,
                       lddq,
                       dk_pool,
                       dv_pool,
                       &plan,
                       splits_done.get(),
                       groups_done.get()};
  pass.first_row = first_row.data();
  pass.num_rows = rows;
  pass.packed_q = packed.get();
  pass.packed_dout = pass.packed_q + values;
  pass.packed_dq = pass.packed_dout + values;
  pass.packed_lse = pass.packed_dq + values;
  pass.packed_delta = pass.packed_lse + vectors;

  const auto pack = HWY_DYNAMIC_DISPATCH(pack_rows);
  compute_pool().parallel_for(plan.first_row_block.back(), [&](int64_t i, int) { pack(pass, i); });
  const auto unit = HWY_DYNAMIC_DISPATCH(backward_unit);
  // In order: a group waits for its turn after lower ones.
  compute_pool().parallel_in_order(static_cast<int64_t>(plan.groups.size()) * shape.num_kv_heads,
                                   [&](int64_t i, int) { unit(pass, i); });
}

}  // namespace keel::ops
#endif  // HWY_ONCE
