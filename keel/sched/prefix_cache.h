// Radix tree of full KV blocks: a node is (salt, parent, 16 token ids) -> block. Keys are compared
// by tokens, never by hash alone. The salt is the weight version, so KV of other weights never
// matches. Not thread-safe; shares the owner's BlockPool.
//
// Eviction takes, of the leaves that nobody but the cache references, the one that is worth least:
// known future uses (want(): requests that wait) count by how soon they come, unknown ones by
// ReuseModel. Evicted blocks are remembered for a while by hash, so that the model also learns what
// it should have kept. Callers keep this property: who holds the block of a node also holds the
// blocks of its ancestors; then every idle block can be evicted and BlockPool::num_idle() is exact.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "keel/sched/block_pool.h"
#include "keel/sched/reuse_model.h"

namespace keel::sched {

class PrefixCache {
 public:
  static constexpr int32_t kRoot = -1;

  explicit PrefixCache(BlockPool& pool);

  // Longest cached prefix of `tokens` in whole blocks, at most max_blocks. Appends the blocks to
  // `blocks`, each with a new reference for the caller, and returns the last node (kRoot: none).
  // Not a use yet: see use().
  int32_t lookup(int64_t salt, std::span<const int32_t> tokens, int32_t max_blocks,
                 std::vector<int32_t>& blocks);
  // The prefix that ends in `node` was taken by a request.
  void use(int32_t node);
  // The prefix that ends in `node` was given back: its age counts from now.
  void touch(int32_t node);

  struct Inserted {
    int32_t node;
    int32_t block;  // the block that holds these tokens in the cache
  };
  // Adds the child of `parent` with these 16 tokens; a new node takes its own reference on `block`.
  // If the node exists already its block is returned; the caller then gives up its own block for
  // it (equal tokens after equal prefixes hold equal bits), retaining and releasing itself.
  Inserted insert(int64_t salt, int32_t parent, std::span<const int32_t> tokens, int32_t block);
  // The child of `parent` with these tokens, or kRoot.
  int32_t child(int64_t salt, int32_t parent, std::span<const int32_t> tokens) const;

  // Somebody waits who will look up `tokens`; lower `order` comes sooner. Returns a ticket.
  int32_t want(int64_t salt, std::span<const int32_t> tokens, int64_t order);
  // Blocks of the ticket's tokens that are cached now.
  int32_t wanted_depth(int32_t ticket) const { return tickets_[ticket].depth; }
  // The ticket's owner was served (its order becomes the present) or gave up.
  void unwant(int32_t ticket, bool served);

  // Frees one block; false when no leaf is idle.
  bool evict_one();

  // Drops every node; blocks that others reference live on uncached. Tickets stay valid.
  void clear();

  int32_t num_nodes() const { return num_nodes_; }

  // Empty if links, children counts, hash chains, tickets and cached marks agree; otherwise what is
  // wrong.
  std::string validate() const;

 private:
  struct Node {
    int64_t salt = 0;
    uint64_t hash = 0;  // of salt and all tokens up to here
    int64_t last_use = 0;
    std::array<int32_t, kBlockTokens> tokens{};
    int32_t block = kNullBlock;  // kNullBlock: the entry is unused
    int32_t parent = kRoot;
    int32_t num_children = 0;
    int32_t next_in_bucket = -1;
    int32_t uses = 0;         // again, after it was idle or evicted
    int32_t leaf = -1;        // index in leaves_
    int32_t first_want = -1;  // tickets whose longest cached prefix ends here, in order of want()
    int32_t last_want = -1;
  };
  struct Ticket {
    std::vector<uint64_t> hashes;  // of its blocks
    int64_t order = -1;
    int32_t node = kRoot;
    int32_t depth = 0;  // blocks up to `node`
    int32_t next = -1;  // of the node's tickets
    int32_t prev = -1;
    int32_t next_missing = -1;  // of those that miss the same block
    int32_t prev_missing = -1;
    bool live = false;
  };
  struct Ghost {
    int64_t last_use = 0;
    int32_t uses = 0;
  };

  static uint64_t hash_root(int64_t salt);
  static uint64_t hash_block(uint64_t before, const int32_t* tokens);
  uint64_t hash_after(int64_t salt, int32_t parent, const int32_t* tokens) const;
  int32_t find(uint64_t hash, int64_t salt, int32_t parent, const int32_t* tokens) const;
  int32_t find_hash(uint64_t hash) const;
  int32_t new_node();
  void remove(int32_t node);
  void grow_table();
  void add_leaf(int32_t node);
  void remove_leaf(int32_t node);
  float worth(int32_t node) const;
  int32_t least_worth(float& next_worth) const;
  void take_census();
  void remember(const Node& node);
  void attach(int32_t ticket, int32_t node, int32_t depth);
  void detach(int32_t ticket);
  void advance(int32_t ticket);

  BlockPool& pool_;
  ReuseModel reuse_;
  std::vector<Node> nodes_;
  std::vector<int32_t> unused_;
  std::vector<int32_t> leaves_;
  std::vector<int32_t> table_;  // power of two buckets, heads of chains
  int32_t num_nodes_ = 0;
  int64_t clock_ = 0;  // blocks that entered
  int64_t next_census_ = 0;
  std::unordered_map<uint64_t, Ghost> ghosts_;
  std::deque<uint64_t> ghost_order_;
  std::vector<Ticket> tickets_;
  std::vector<int32_t> unused_tickets_;
  std::unordered_map<uint64_t, int32_t> missing_;  // hash of the first missing block -> ticket
  int64_t served_order_ = 0;
  double blocks_per_served_ = 1;
  int64_t served_clock_ = 0;
  int32_t victim_ = kRoot;  // parent of the last victim: mostly the next one
  float victim_limit_ = 0;
};

}  // namespace keel::sched
