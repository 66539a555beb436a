// Reference-counted pool of KV blocks of 16 tokens. Exact accounting, no allocation after the
// constructor; not thread-safe (one scheduler owns it). Block 0 is the null block: never handed
// out.
//
// A block may be *cached* (the prefix cache holds one of its references). A cached block with no
// other reference is idle: its memory can be had by evicting it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace keel::sched {

inline constexpr int32_t kBlockTokens = 16;
inline constexpr int32_t kNullBlock = 0;

inline int32_t blocks_for(int64_t tokens) {
  return static_cast<int32_t>((tokens + kBlockTokens - 1) / kBlockTokens);
}

class BlockPool {
 public:
  // num_blocks counts the null block; >= 2.
  explicit BlockPool(int32_t num_blocks);

  // A block with one reference, or kNullBlock when none is free.
  int32_t allocate();
  void retain(int32_t block);
  // Drops one reference; the block becomes free with its last one.
  void release(int32_t block);
  // Marks whether the prefix cache holds one of the references of a block in use.
  void set_cached(int32_t block, bool cached);

  int32_t ref_count(int32_t block) const { return refs_[block]; }
  bool cached(int32_t block) const { return cached_[block]; }
  bool idle(int32_t block) const { return cached_[block] && refs_[block] == 1; }
  int32_t capacity() const { return static_cast<int32_t>(refs_.size()) - 1; }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t num_idle() const { return num_idle_; }
  // Blocks that somebody other than the prefix cache holds.
  int32_t num_used() const { return capacity() - num_free() - num_idle_; }

  // Empty if counters, free list and references agree; otherwise what is wrong. O(blocks).
  std::string validate() const;

 private:
  std::vector<int32_t> refs_;
  std::vector<uint8_t> cached_;
  std::vector<int32_t> free_;  // last freed, first used
  int32_t num_idle_ = 0;
};

}  // namespace keel::sched
