#include "keel/sched/block_pool.h"

#include "keel/base/error.h"

namespace keel::sched {

BlockPool::BlockPool(int32_t num_blocks) {
  KEEL_REQUIRE(num_blocks >= 2, "[sched.block_pool] expected at least 2 KV blocks, got {}",
               num_blocks);
  refs_.assign(num_blocks, 0);
  cached_.assign(num_blocks, 0);
  refs_[kNullBlock] = 1;
  free_.reserve(num_blocks - 1);
  for (int32_t b = num_blocks - 1; b > kNullBlock; --b) free_.push_back(b);
}

int32_t BlockPool::allocate() {
  if (free_.empty()) return kNullBlock;
  const int32_t block = free_.back();
  free_.pop_back();
  refs_[block] = 1;
  return block;
}

void BlockPool::retain(int32_t block) {
  KEEL_CHECK(block > kNullBlock && refs_[block] > 0, "retain of free block {}", block);
  if (idle(block)) --num_idle_;
  ++refs_[block];
}

void BlockPool::release(int32_t block) {
  KEEL_CHECK(block > kNullBlock && refs_[block] > 0, "release of free block {}", block);
  KEEL_CHECK(!idle(block), "block {} belongs to the prefix cache", block);
  if (--refs_[block] == 0) {
    free_.push_back(block);
  } else if (idle(block)) {
    ++num_idle_;
  }
}

void BlockPool::set_cached(int32_t block, bool cached) {
  KEEL_CHECK(block > kNullBlock && refs_[block] > 0, "cache mark on free block {}", block);
  num_idle_ -= idle(block);
  cached_[block] = cached;
  num_idle_ += idle(block);
}

std::string BlockPool::validate() const {
  std::vector<uint8_t> is_free(refs_.size(), 0);
  for (const int32_t b : free_) {
    if (b <= kNullBlock || b > capacity()) return fmt::format("free list names block {}", b);
    if (is_free[b]) return fmt::format("block {} is in the free list twice", b);
    is_free[b] = 1;
  }
  int32_t num_idle = 0;
  for (int32_t b = kNullBlock + 1; b <= capacity(); ++b) {
    if ((refs_[b] == 0) != (is_free[b] == 1)) {
      return fmt::format("block {} has {} references, free list says {}", b, refs_[b], is_free[b]);
    }
    if (refs_[b] < 0) return fmt::format("block {} has {} references", b, refs_[b]);
    if (refs_[b] == 0 && cached_[b]) return fmt::format("free block {} is marked cached", b);
    num_idle += idle(b);
  }
  if (num_idle != num_idle_) return fmt::format("{} idle blocks, counted {}", num_idle, num_idle_);
  if (refs_[kNullBlock] != 1) return "the null block was touched";
  return "";
}

}  // namespace keel::sched
