// Radix tree of full KV blocks: a node is (salt, parent, 16 token ids) -> block. Keys are compared
// by tokens, never by hash alone. The salt is the weight version, so KV of other weights never
// matches. Not thread-safe; shares the owner's BlockPool.
//
// Eviction takes the least recently used leaf that nobody but the cache references. Callers keep
// this property: who holds the block of a node also holds the blocks of its ancestors; then every
// idle block can be evicted and BlockPool::num_idle() is exact.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "keel/sched/block_pool.h"

namespace keel::sched {

class PrefixCache {
 public:
  static constexpr int32_t kRoot = -1;

  explicit PrefixCache(BlockPool& pool);

  // Longest cached prefix of `tokens` in whole blocks, at most max_blocks. Appends the blocks to
  // `blocks`, each with a new reference for the caller, and returns the last node (kRoot: none).
  int32_t lookup(int64_t salt, std::span<const int32_t> tokens, int32_t max_blocks,
                 std::vector<int32_t>& blocks);

  struct Inserted {
    int32_t node;
    int32_t block;  // the block that holds these tokens in the cache
  };
  // Adds the child of `parent` with these 16 tokens; a new node takes its own reference on `block`.
  // If the node exists already its block is returned; the caller then gives up its own block for
  // it (equal tokens after equal prefixes hold equal bits), retaining and releasing itself.
  Inserted insert(int64_t salt, int32_t parent, std::span<const int32_t> tokens, int32_t block);

  // Marks a node as just used.
  void touch(int32_t node);

  // Frees the least recently used idle leaf; false when there is none.
  bool evict_one();

  // Drops every node; blocks that others reference live on uncached.
  void clear();

  int32_t num_nodes() const { return num_nodes_; }

  // Empty if links, children counts, hash chains and cached marks agree; otherwise what is wrong.
  std::string validate() const;

 private:
  struct Node {
    int64_t salt = 0;
    uint64_t hash = 0;
    std::array<int32_t, kBlockTokens> tokens{};
    int32_t block = kNullBlock;  // kNullBlock: the entry is unused
    int32_t parent = kRoot;
    int32_t num_children = 0;
    int32_t next_in_bucket = -1;
    int64_t last_use = 0;
    int32_t older = -1;  // list of leaves, sorted by last use
    int32_t newer = -1;
  };

  int32_t find(uint64_t hash, int64_t salt, int32_t parent, const int32_t* tokens) const;
  int32_t new_node();
  void link_leaf(int32_t node);
  void unlink(int32_t node);
  void remove(int32_t node);
  void grow_table();

  BlockPool& pool_;
  std::vector<Node> nodes_;
  std::vector<int32_t> unused_;
  std::vector<int32_t> table_;  // power of two buckets, heads of chains
  int32_t num_nodes_ = 0;
  int64_t clock_ = 0;  // counts uses
  int32_t oldest_ = -1;
  int32_t newest_ = -1;
};

}  // namespace keel::sched
