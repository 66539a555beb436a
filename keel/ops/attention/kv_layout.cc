#include "keel/ops/attention/kv_layout.h"

#include <algorithm>

#include "keel/base/error.h"

namespace keel::ops {
namespace {

// Batch row that holds a position of a sequence: its own or one of its prefixes'.
int64_t row_of(std::span<const PackedSequence> sequences, size_t index, int32_t position) {
  while (position < sequences[index].prefix_length) index = sequences[index].prefix;
  return sequences[index].row + position - sequences[index].prefix_length;
}

void check(std::span<const PackedSequence> sequences) {
  for (size_t i = 0; i < sequences.size(); ++i) {
    const PackedSequence& s = sequences[i];
    KEEL_CHECK(s.num_rows >= 0 && s.prefix_length >= 0 && s.prefix < static_cast<int64_t>(i),
               "sequence {}: {} rows, prefix {} of {}", i, s.num_rows, s.prefix, s.prefix_length);
    const int32_t length =
        s.prefix < 0 ? 0 : sequences[s.prefix].prefix_length + sequences[s.prefix].num_rows;
    KEEL_CHECK(s.prefix_length <= length, "sequence {}: prefix of {} in a sequence of {}", i,
               s.prefix_length, length);
  }
}

}  // namespace

KvLayout make_kv_layout(std::span<const PackedSequence> sequences) {
  check(sequences);
  KvLayout layout;
  std::vector<size_t> first_id;  // where a sequence's list starts in block_ids
  for (size_t i = 0; i < sequences.size(); ++i) {
    const PackedSequence& s = sequences[i];
    const int32_t shared = s.prefix_length / kKvBlock;
    const int32_t length = s.prefix_length + s.num_rows;
    first_id.push_back(layout.block_ids.size());
    for (int32_t j = 0; j < shared; ++j)
      layout.block_ids.push_back(layout.block_ids[first_id[s.prefix] + j]);
    for (int32_t p = shared * kKvBlock; p < length; ++p) {
      if (p % kKvBlock == 0) layout.block_ids.push_back(layout.num_blocks++);
      layout.slots.push_back({row_of(sequences, i, p), layout.block_ids.back(), p % kKvBlock});
    }
  }
  for (size_t i = 0; i < sequences.size(); ++i) {
    const PackedSequence& s = sequences[i];
    layout.sequences.push_back(
        {s.row, s.num_rows, s.prefix_length, layout.block_ids.data() + first_id[i]});
  }
  return layout;
}

}  // namespace keel::ops
