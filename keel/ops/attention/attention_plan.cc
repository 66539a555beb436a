#include "keel/ops/attention/attention_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace keel::ops {
namespace {

// Query vectors up to which cutting the keys is worth the merge.
constexpr int kMaxCutVecs = 16;
// Splits that a part has at least: about 10 us of work.
constexpr int kMinPartSplits = 4;
constexpr int kPartsPerThread = 4;

int64_t unit_cost(const ForwardUnit& u) {
  // A split costs its memory traffic (worth about 8 query vectors) and its arithmetic.
  return int64_t{u.split_end - u.split_begin} * (8 + u.row_end - u.row_begin);
}

int splits_of(const AttentionSequence& s, int row_end) {
  return (s.first_position + row_end + kKvSplit - 1) / kKvSplit;
}

// Same split and same blocks: one group.
bool same_keys(const BackwardGroup& a, const BackwardGroup& b) {
  return a.split == b.split && a.num_blocks == b.num_blocks &&
         std::equal(a.blocks, a.blocks + a.num_blocks, b.blocks);
}

bool runs_before(const BackwardGroup& a, const BackwardGroup& b) {
  if (a.split != b.split) return a.split < b.split;
  return std::lexicographical_compare(a.blocks, a.blocks + a.num_blocks, b.blocks,
                                      b.blocks + b.num_blocks);
}

// One entry for each sequence and split, its member being the sequence.
std::vector<BackwardGroup> single_groups(std::span<const AttentionSequence> sequences) {
  std::vector<BackwardGroup> singles;
  for (int32_t i = 0; i < static_cast<int32_t>(sequences.size()); ++i) {
    const AttentionSequence& s = sequences[i];
    if (s.num_rows == 0) continue;
    const int num_blocks = (s.first_position + s.num_rows + kKvBlock - 1) / kKvBlock;
    for (int first = 0; first < num_blocks; first += BackwardGroup::kMaxBlocks) {
      BackwardGroup g;
      g.split = first / BackwardGroup::kMaxBlocks;
      g.num_blocks = std::min(BackwardGroup::kMaxBlocks, num_blocks - first);
      std::copy_n(s.blocks + first, g.num_blocks, g.blocks);
      g.member_begin = i;
      singles.push_back(g);
    }
  }
  return singles;
}

}  // namespace

ForwardPlan plan_forward(const AttentionShape& shape, std::span<const AttentionSequence> sequences,
                         int num_threads) {
  ForwardPlan plan;
  const int group = shape.num_heads / shape.num_kv_heads;
  const int block_rows = std::max(1, kForwardVecs / group);
  int64_t total = 0;
  for (int32_t i = 0; i < static_cast<int32_t>(sequences.size()); ++i) {
    const AttentionSequence& s = sequences[i];
    for (int32_t r = 0; r < s.num_rows; r += block_rows) {
      const int32_t end = std::min(s.num_rows, r + block_rows);
      for (int32_t h = 0; h < shape.num_kv_heads; ++h) {
        plan.units.push_back({i, h, r, end, 0, splits_of(s, end), -1});
        total += unit_cost(plan.units.back());
      }
    }
  }
  const size_t num_whole = plan.units.size();
  const int64_t target = total / (int64_t{num_threads} * kPartsPerThread);
  for (size_t i = 0; num_threads > 1 && i < num_whole; ++i) {
    ForwardUnit& whole = plan.units[i];
    const int vecs = (whole.row_end - whole.row_begin) * group;
    const int splits = whole.split_end;
    if (vecs > kMaxCutVecs || unit_cost(whole) <= 2 * target) continue;
    const int part = std::max<int64_t>(kMinPartSplits, splits * target / unit_cost(whole));
    if (splits < 2 * part) continue;
    const int num_parts = (splits + part - 1) / part;
    whole.merge = static_cast<int32_t>(plan.merges.size());
    plan.merges.push_back({num_parts, part, splits, plan.workspace_floats});
    plan.workspace_floats += (1 + splits - part) * state_floats(vecs, shape.head_dim);
    whole.split_end = part;
    for (int p = 1; p < num_parts; ++p) {
      ForwardUnit u = plan.units[i];
      u.split_begin = p * part;
      u.split_end = std::min(splits, (p + 1) * part);
      plan.units.push_back(u);
    }
  }
  std::stable_sort(plan.units.begin(), plan.units.end(),
                   [](const auto& a, const auto& b) { return unit_cost(a) > unit_cost(b); });
  return plan;
}

BackwardPlan plan_backward(const AttentionShape& shape,
                           std::span<const AttentionSequence> sequences) {
  BackwardPlan plan;
  plan.rows_per_block = std::max(1, kBackwardVecs * shape.num_kv_heads / shape.num_heads);
  plan.first_row_block.push_back(0);
  for (const AttentionSequence& s : sequences)
    plan.first_row_block.push_back(plan.first_row_block.back() +
                                   (s.num_rows + plan.rows_per_block - 1) / plan.rows_per_block);

  std::vector<BackwardGroup> singles = single_groups(sequences);
  std::stable_sort(singles.begin(), singles.end(), runs_before);
  for (const BackwardGroup& g : singles) {
    if (plan.groups.empty() || !same_keys(plan.groups.back(), g)) {
      plan.groups.push_back(g);
      plan.groups.back().member_begin = static_cast<int32_t>(plan.members.size());
    }
    plan.members.push_back(g.member_begin);
    plan.groups.back().member_end = static_cast<int32_t>(plan.members.size());
  }

  // Within a split the group of the earliest sequence comes first; that order is also the order of
  // sums in shared blocks.
  std::stable_sort(plan.groups.begin(), plan.groups.end(), [&](const auto& a, const auto& b) {
    if (a.split != b.split) return a.split < b.split;
    return plan.members[a.member_begin] < plan.members[b.member_begin];
  });
  std::vector<int32_t> holders;
  for (BackwardGroup& g : plan.groups) {
    for (int j = 0; j < g.num_blocks; ++j) {
      const auto block = static_cast<size_t>(g.blocks[j]);
      if (block >= holders.size()) holders.resize(block + 1);
      g.turn[j] = holders[block]++;
    }
  }
  plan.num_pool_blocks = static_cast<int32_t>(holders.size());
  return plan;
}

std::string validate(const AttentionShape& shape, std::span<const AttentionSequence> sequences,
                     const ForwardPlan& plan) {
  for (int32_t i = 0; i < static_cast<int32_t>(sequences.size()); ++i) {
    const AttentionSequence& s = sequences[i];
    for (int32_t h = 0; h < shape.num_kv_heads; ++h) {
      for (int32_t r = 0; r < s.num_rows; ++r) {
        std::vector<int> seen(splits_of(s, r + 1));
        for (const ForwardUnit& u : plan.units) {
          if (u.sequence != i || u.kv_head != h || r < u.row_begin || r >= u.row_end) continue;
          for (int j = u.split_begin; j < std::min<int>(u.split_end, seen.size()); ++j) ++seen[j];
        }
        if (std::any_of(seen.begin(), seen.end(), [](int n) { return n != 1; }))
          return fmt::format("sequence {} kv head {} row {}: a split is not covered once", i, h, r);
      }
    }
  }
  return {};
}

}  // namespace keel::ops
