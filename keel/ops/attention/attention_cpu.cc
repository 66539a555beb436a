#include "keel/ops/attention/attention_pass.h"
#include "keel/ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "keel/ops/attention/attention_cpu.cc"  // NOLINT
#include <hwy/foreach_target.h>                                   // IWYU pragma: keep
// After foreach_target.h:
#include "keel/ops/attention/attention-inl.h"

#include <hwy/aligned_allocator.h>

#include <cmath>
#include <memory>
#include <vector>

#include "keel/base/error.h"
#include "keel/base/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace keel::ops::HWY_NAMESPACE {
namespace {

// Softmax state of the query vectors of a unit: after some splits, or of one split.
struct State {
  float* max;  // [vecs]
  float* sum;  // [vecs][16], lane i sums keys i, i + 16, ...
  float* out;  // [vecs][head_dim], not yet divided by the sum
};

State state_at(float* base, size_t vecs) { return {base, base + vecs, base + 17 * vecs}; }

void reset(const State& state, size_t vecs, size_t head_dim) {
  std::fill_n(state.max, vecs, kNegInf);
  std::fill_n(state.sum, vecs * 16, 0.0f);
  std::fill_n(state.out, vecs * head_dim, 0.0f);
}

constexpr int kSplitBlocks = kKvSplit / kKvBlock;

// Query vectors from which on value rows are repacked.
constexpr size_t kPackVecs = 18;

// s: scores of one query vector against num_blocks key blocks, of which num_keys keys count.
// s becomes exp(scale * s - max); returns the maximum; sum receives 16 lane sums.
HWY_NOINLINE float softmax_row(float* s, size_t num_keys, size_t num_blocks, float scale,
                               bool round_p, float* sum) {
  const F32 d;
  for (size_t i = num_keys / kLanes * kLanes; i < num_blocks * kKvBlock; i += kLanes) {
    const auto index = hn::Iota(d, static_cast<float>(i));
    const auto valid = hn::Lt(index, hn::Set(d, static_cast<float>(num_keys)));
    hn::StoreU(hn::IfThenElse(valid, hn::LoadU(d, s + i), hn::Set(d, kNegInf)), d, s + i);
  }
  VF max = hn::LoadU(d, s);
  for (size_t i = kLanes; i < num_blocks * kKvBlock; i += kLanes)
    max = hn::Max(max, hn::LoadU(d, s + i));
  const float top = hn::GetLane(hn::MaxOfLanes(d, max)) * scale;
  const VF factor = hn::Set(d, scale);
  const VF minus = hn::Set(d, top);
  for (size_t n = 0; n < 16; n += kLanes) {
    VF lane_sum = hn::Zero(d);
    for (size_t i = n; i < num_blocks * kKvBlock; i += kKvBlock) {
      const VF p = exp_f32(hn::MulSub(hn::LoadU(d, s + i), factor, minus));
      lane_sum = hn::Add(lane_sum, p);
      hn::StoreU(round_p ? round_bf16(p) : p, d, s + i);
    }
    hn::StoreU(lane_sum, d, sum + n);
  }
  return top;
}

// Merges another state's maxima and sums into `state`; a and b receive the factors of the two
// outputs. All arrays may be read and written up to the next multiple of 16 vectors.
void merge_sums(const State& state, const float* max, const float* sum, size_t vecs, float* a,
                float* b) {
  const F32 d;
  for (size_t v = 0; v < vecs; v += kLanes) {
    const auto old_max = hn::LoadU(d, state.max + v);
    const auto new_max = hn::LoadU(d, max + v);
    const auto top = hn::Max(old_max, new_max);
    hn::StoreU(exp_f32(hn::Sub(old_max, top)), d, a + v);
    hn::StoreU(exp_f32(hn::Sub(new_max, top)), d, b + v);
    const size_t left = vecs - v;
    if (left >= kLanes) {
      hn::StoreU(top, d, state.max + v);
    } else {
      float tail[kLanes];
      hn::StoreU(top, d, tail);
      std::copy_n(tail, left, state.max + v);
    }
  }
  for (size_t v = 0; v < vecs; ++v) {
    for (size_t n = 0; n < 16; n += kLanes) {
      float* const x = state.sum + v * 16 + n;
      const auto scaled = hn::Mul(hn::LoadU(d, x), hn::Set(d, a[v]));
      hn::StoreU(hn::MulAdd(hn::LoadU(d, sum + v * 16 + n), hn::Set(d, b[v]), scaled), d, x);
    }
  }
}

// The fixed tree over the 16 lane sums.
HWY_INLINE float lane_tree(const float* sum) {
  float x[8];
  for (int i = 0; i < 8; ++i) x[i] = sum[i] + sum[i + 8];
  return lane_tree_8(x);
}

// Takes a tile of P.V: out = out * a + sum * b, row by row.
struct MergeOutput {
  float* out;
  size_t head_dim;
  const float* a;
  const float* b;

  template <class D>
  HWY_INLINE void operator()(D d, size_t r, size_t col, hn::Vec<D> sum) const {
    float* const o = out + r * head_dim + col;
    const auto old = hn::Mul(hn::LoadU(d, o), hn::Set(d, a[r]));
    hn::StoreU(hn::MulAdd(sum, hn::Set(d, b[r]), old), d, o);
  }
};

template <size_t kRows>
HWY_NOINLINE void panel_rows(const float* p, size_t keys, const float* panels, size_t col,
                             const MergeOutput& output) {
  panel_tile<kRows>(p, keys, panels, output.head_dim, col, output);
}

template <class T>
class ForwardKernel {
 public:
  ForwardKernel(const ForwardPass& pass, const ForwardUnit& unit)
      : pass_(pass), unit_(unit), sequence_(pass.sequences[unit.sequence]) {
    head_dim_ = pass.shape.head_dim;
    group_ = pass.shape.num_heads / pass.shape.num_kv_heads;
    vecs_ = static_cast<size_t>(unit.row_end - unit.row_begin) * group_;
    const int64_t padded = round_up_16(vecs_);
    float* p = attention_scratch(vecs_ * (2 * head_dim_ + kKvSplit + 32) + 5 * padded +
                                 panel_floats(head_dim_));
    panels_ = p;
    q_ = panels_ + panel_floats(head_dim_);
    state_.out = q_ + vecs_ * head_dim_;
    scores_ = state_.out + vecs_ * head_dim_;
    state_.sum = scores_ + vecs_ * kKvSplit;
    split_sum_ = state_.sum + vecs_ * 16;
    state_.max = split_sum_ + vecs_ * 16;
    split_max_ = state_.max + padded;
    a_ = split_max_ + padded;
    b_ = a_ + padded;
    std::fill_n(state_.max, 2 * padded, 0.0f);  // the padding is computed with
  }

  void run() {
    gather_q();
    reset(state_, vecs_, head_dim_);
    const ForwardMerge* merge = unit_.merge < 0 ? nullptr : &pass_.plan->merges[unit_.merge];
    for (int s = unit_.split_begin; s < unit_.split_end; ++s) {
      split(s);
      if (merge && unit_.split_begin > 0) {
        save(*merge, 1 + s - merge->first_split);
        reset(state_, vecs_, head_dim_);
      }
    }
    if (merge) {
      if (unit_.split_begin == 0) save(*merge, 0);
      if (pass_.parts_left[unit_.merge].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
      merge_parts(*merge);
    }
    write();
  }

 private:
  void gather_q() {
    for (size_t v = 0; v < vecs_; ++v) {
      const int64_t row = sequence_.row + unit_.row_begin + static_cast<int64_t>(v / group_);
      const size_t head = unit_.kv_head * group_ + v % group_;
      std::copy_n(pass_.q + row * pass_.ldq + head * head_dim_, head_dim_, q_ + v * head_dim_);
    }
  }

  // Keys of the split from `start` that query vector v sees; at least one for v >= first vector.
  size_t keys_of(size_t v, int start) const {
    const int position = sequence_.first_position + unit_.row_begin + static_cast<int>(v / group_);
    return std::min(kKvSplit, position - start + 1);
  }

  void split(int index) {
    const int start = index * kKvSplit;
    const int first_row = start - sequence_.first_position - unit_.row_begin;
    const size_t begin = std::max(0, first_row) * group_;
    const T* k[kSplitBlocks];
    const T* v[kSplitBlocks];
    const size_t num_blocks = blocks_of(index, k, v);
    const bool pack = vecs_ - begin >= kPackVecs;
    // The value rows come near while scores are computed, the next keys while values are added up.
    size_t fetched = 0;
    for_tiles(begin, start, [&](auto rows, size_t at, size_t keys) KEEL_INLINE_LAMBDA {
      if (pack && fetched < num_blocks) prefetch(v[fetched++]);
      score_rows<decltype(rows)::value>(at, keys, start, k);
    });
    const State running = {state_.max + begin, state_.sum + begin * 16, nullptr};
    merge_sums(running, split_max_ + begin, split_sum_ + begin * 16, vecs_ - begin, a_ + begin,
               b_ + begin);
    if (!pack) {
      for_tiles(begin, start, [&](auto rows, size_t at, size_t keys) KEEL_INLINE_LAMBDA {
        value_rows<decltype(rows)::value>(at, keys, v);
      });
      return;
    }
    pack_panels(v, keys_of(vecs_ - 1, start), head_dim_, panels_);
    const size_t num_next = index + 1 < unit_.split_end ? blocks_of(index + 1, k, v) : 0;
    fetched = 0;
    for (size_t col = 0; col < head_dim_; col += 16) {
      for_tiles(begin, start, [&](auto rows, size_t at, size_t keys) KEEL_INLINE_LAMBDA {
        if (fetched < num_next) prefetch(k[fetched++]);
        panel_rows<decltype(rows)::value>(scores_ + at * kKvSplit, keys, panels_, col,
                                          output_at(at));
      });
    }
  }

  // Where the blocks of a split lie; returns their number.
  size_t blocks_of(int split, const T** k, const T** v) const {
    const int num_keys =
        std::min(kKvSplit, sequence_.first_position + unit_.row_end - split * kKvSplit);
    const size_t num_blocks = (num_keys + kKvBlock - 1) / kKvBlock;
    for (size_t j = 0; j < num_blocks; ++j) {
      const int64_t block = sequence_.blocks[split * kSplitBlocks + j];
      const int64_t at = (block * pass_.shape.num_kv_heads + unit_.kv_head) *
                         static_cast<int64_t>(head_dim_ * kKvBlock);
      k[j] = static_cast<const T*>(pass_.pool.k) + at;
      v[j] = static_cast<const T*>(pass_.pool.v) + at;
    }
    return num_blocks;
  }

  HWY_INLINE void prefetch(const T* block) const {
    constexpr size_t kLine = 64 / sizeof(T);
    for (size_t i = 0; i < head_dim_ * kKvBlock; i += kLine) __builtin_prefetch(block + i, 0, 2);
  }

  // f(integral_constant<rows>, first vector, keys that the last of the rows sees)
  template <class F>
  HWY_INLINE void for_tiles(size_t begin, int start, F&& f) {
    for (size_t v = begin, rows; v < vecs_; v += rows) {
      rows = tile_rows(vecs_ - v);
      const size_t keys = keys_of(v + rows - 1, start);
      with_tile_rows(rows, [&](auto r) KEEL_INLINE_LAMBDA { f(r, v, keys); });
    }
  }

  template <size_t kRows>
  HWY_NOINLINE void score_rows(size_t at, size_t keys, int start, const T* const* k) {
    const size_t num_blocks = (keys + kKvBlock - 1) / kKvBlock;
    float* const s = scores_ + at * kKvSplit;
    score_tile<kRows>(q_ + at * head_dim_, head_dim_, k, num_blocks, s);
    for (size_t r = 0; r < kRows; ++r) {
      split_max_[at + r] =
          softmax_row(s + r * kKvSplit, keys_of(at + r, start), num_blocks, pass_.shape.scale,
                      pass_.shape.round_bf16, split_sum_ + (at + r) * 16);
    }
  }

  template <size_t kRows>
  HWY_NOINLINE void value_rows(size_t at, size_t keys, const T* const* v) {
    value_tile<kRows>(scores_ + at * kKvSplit, keys, v, head_dim_, output_at(at));
  }

  MergeOutput output_at(size_t at) const {
    return {state_.out + at * head_dim_, head_dim_, a_ + at, b_ + at};
  }

  State saved(const ForwardMerge& merge, int slot) const {
    return state_at(pass_.workspace + merge.offset + slot * state_floats(vecs_, head_dim_), vecs_);
  }

  void save(const ForwardMerge& merge, int slot) const {
    const State to = saved(merge, slot);
    std::copy_n(state_.max, vecs_, to.max);
    std::copy_n(state_.sum, vecs_ * 16, to.sum);
    std::copy_n(state_.out, vecs_ * head_dim_, to.out);
  }

  void merge_parts(const ForwardMerge& merge) {
    const State first = saved(merge, 0);
    std::copy_n(first.max, vecs_, state_.max);
    std::copy_n(first.sum, vecs_ * 16, state_.sum);
    std::copy_n(first.out, vecs_ * head_dim_, state_.out);
    const Half d;
    for (int s = merge.first_split; s < merge.num_splits; ++s) {
      const State other = saved(merge, 1 + s - merge.first_split);
      std::copy_n(other.max, vecs_, split_max_);
      merge_sums(state_, split_max_, other.sum, vecs_, a_, b_);
      for (size_t v = 0; v < vecs_; ++v) {
        const auto a = hn::Set(d, a_[v]);
        const auto b = hn::Set(d, b_[v]);
        for (size_t i = v * head_dim_; i < (v + 1) * head_dim_; i += hn::MaxLanes(d)) {
          const auto old = hn::Mul(hn::LoadU(d, state_.out + i), a);
          hn::StoreU(hn::MulAdd(hn::LoadU(d, other.out + i), b, old), d, state_.out + i);
        }
      }
    }
  }

  void write() const {
    const Half d;
    for (size_t v = 0; v < vecs_; ++v) {
      const int64_t row = sequence_.row + unit_.row_begin + static_cast<int64_t>(v / group_);
      const size_t head = unit_.kv_head * group_ + v % group_;
      const float sum = lane_tree(state_.sum + v * 16);
      if (pass_.lse) pass_.lse[row * pass_.shape.num_heads + head] = state_.max[v] + std::log(sum);
      const auto inverse = hn::Set(d, 1.0f / sum);
      float* const out = pass_.out + row * pass_.ldo + head * head_dim_;
      for (size_t i = 0; i < head_dim_; i += hn::MaxLanes(d)) {
        const auto x = hn::Mul(hn::LoadU(d, state_.out + v * head_dim_ + i), inverse);
        hn::StoreU(pass_.shape.round_bf16 ? round_bf16(x) : x, d, out + i);
      }
    }
  }

  const ForwardPass& pass_;
  const ForwardUnit& unit_;
  const AttentionSequence& sequence_;
  size_t head_dim_, group_, vecs_;
  State state_;
  float *panels_, *q_, *scores_, *split_sum_, *split_max_, *a_, *b_;
};

void forward_unit(const ForwardPass& pass, const ForwardUnit& unit) {
  if (pass.pool.dtype == DType::kBF16) {
    ForwardKernel<uint16_t>(pass, unit).run();
  } else {
    ForwardKernel<float>(pass, unit).run();
  }
}

}  // namespace
}  // namespace keel::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keel::ops {
namespace {
HWY_EXPORT(forward_unit);
}  // namespace

float* attention_scratch(int64_t num_floats) {
  thread_local hwy::AlignedFreeUniquePtr<float[]> buffer;
  thread_local int64_t capacity = 0;
  if (num_floats > capacity) {
    capacity = std::max(num_floats, 2 * capacity);
    buffer = hwy::AllocateAligned<float>(capacity);
    KEEL_CHECK(buffer != nullptr, "no memory for {} floats", capacity);
  }
  return buffer.get();
}

void check_attention_shape(const AttentionShape& shape) {
  KEEL_CHECK(shape.num_kv_heads > 0 && shape.num_heads % shape.num_kv_heads == 0, "{} heads, {}",
             shape.num_heads, shape.num_kv_heads);
  KEEL_CHECK(shape.head_dim > 0 && shape.head_dim % 8 == 0 && shape.head_dim <= 256, "head_dim {}",
             shape.head_dim);
  KEEL_CHECK(shape.scale > 0, "scale {}", shape.scale);
}

void attention_forward(const AttentionShape& shape, const float* q, int64_t ldq, const KvPool& pool,
                       std::span<const AttentionSequence> sequences, float* out, int64_t ldo,
                       float* lse) {
  check_attention_shape(shape);
  const ForwardPlan plan = plan_forward(shape, sequences, compute_pool().num_threads());
  thread_local std::vector<float> workspace;  // parts are small: query rows of decode
  workspace.resize(plan.workspace_floats);
  const auto parts_left = std::make_unique<std::atomic<int>[]>(plan.merges.size());
  for (size_t i = 0; i < plan.merges.size(); ++i) parts_left[i] = plan.merges[i].num_parts;
  const ForwardPass pass = {
      shape, q, ldq, pool, sequences, out, ldo, lse, &plan, workspace.data(), parts_left.get()};
  const auto kernel = HWY_DYNAMIC_DISPATCH(forward_unit);
  // In order: long units come first.
  compute_pool().parallel_in_order(static_cast<int64_t>(plan.units.size()),
                                   [&](int64_t i, int) { kernel(pass, plan.units[i]); });
}

}  // namespace keel::ops
#endif  // HWY_ONCE
