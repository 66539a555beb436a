#include "keel/sched/prefix_cache.h"

#include <algorithm>

#include "keel/base/error.h"
#include "keel/base/rng.h"

namespace keel::sched {
namespace {

uint64_t hash_key(int64_t salt, int32_t parent, const int32_t* tokens) {
  uint64_t h = mix_key(static_cast<uint64_t>(salt), static_cast<uint32_t>(parent));
  for (int i = 0; i < kBlockTokens; i += 2) {
    const uint64_t pair = static_cast<uint64_t>(static_cast<uint32_t>(tokens[i])) << 32 |
                          static_cast<uint32_t>(tokens[i + 1]);
    h = mix_key(h, pair);
  }
  return h;
}

}  // namespace

PrefixCache::PrefixCache(BlockPool& pool) : pool_(pool), table_(64, -1) {}

int32_t PrefixCache::find(uint64_t hash, int64_t salt, int32_t parent,
                          const int32_t* tokens) const {
  int32_t n = table_[hash & (table_.size() - 1)];
  for (; n >= 0; n = nodes_[n].next_in_bucket) {
    const auto& node = nodes_[n];
    if (node.hash == hash && node.salt == salt && node.parent == parent &&
        std::equal(node.tokens.begin(), node.tokens.end(), tokens)) {
      return n;
    }
  }
  return -1;
}

int32_t PrefixCache::lookup(int64_t salt, std::span<const int32_t> tokens, int32_t max_blocks,
                            std::vector<int32_t>& blocks) {
  int32_t parent = kRoot;
  const auto limit = std::min<int64_t>(max_blocks, tokens.size() / kBlockTokens);
  for (int64_t b = 0; b < limit; ++b) {
    const int32_t* block_tokens = tokens.data() + b * kBlockTokens;
    const int32_t n = find(hash_key(salt, parent, block_tokens), salt, parent, block_tokens);
    if (n < 0) break;
    pool_.retain(nodes_[n].block);
    blocks.push_back(nodes_[n].block);
    nodes_[n].last_use = clock_;
    parent = n;
  }
  if (parent != kRoot) touch(parent);
  return parent;
}

PrefixCache::Inserted PrefixCache::insert(int64_t salt, int32_t parent,
                                          std::span<const int32_t> tokens, int32_t block) {
  KEEL_CHECK(tokens.size() == kBlockTokens, "{} tokens in a block", tokens.size());
  const uint64_t hash = hash_key(salt, parent, tokens.data());
  if (const int32_t n = find(hash, salt, parent, tokens.data()); n >= 0) {
    touch(n);
    return {n, nodes_[n].block};
  }
  KEEL_CHECK(!pool_.cached(block), "block {} is in the prefix cache already", block);
  const int32_t n = new_node();
  auto& node = nodes_[n];
  node.salt = salt;
  node.hash = hash;
  std::copy(tokens.begin(), tokens.end(), node.tokens.begin());
  node.block = block;
  node.parent = parent;
  node.num_children = 0;
  pool_.retain(block);
  pool_.set_cached(block, true);
  auto& head = table_[hash & (table_.size() - 1)];
  node.next_in_bucket = head;
  head = n;
  node.last_use = ++clock_;
  if (parent != kRoot && nodes_[parent].num_children++ == 0) unlink(parent);
  link_leaf(n);
  return {n, block};
}

int32_t PrefixCache::new_node() {
  if (++num_nodes_ > static_cast<int32_t>(table_.size())) grow_table();
  if (unused_.empty()) {
    nodes_.emplace_back();
    return static_cast<int32_t>(nodes_.size()) - 1;
  }
  const int32_t n = unused_.back();
  unused_.pop_back();
  return n;
}

void PrefixCache::grow_table() {
  table_.assign(table_.size() * 2, -1);
  for (size_t n = 0; n < nodes_.size(); ++n) {
    if (nodes_[n].block == kNullBlock) continue;
    auto& head = table_[nodes_[n].hash & (table_.size() - 1)];
    nodes_[n].next_in_bucket = head;
    head = static_cast<int32_t>(n);
  }
}

// A fresh leaf is the newest; a parent whose last child went belongs near the old end.
void PrefixCache::link_leaf(int32_t n) {
  int32_t newer = -1;
  if (newest_ >= 0 && nodes_[newest_].last_use > nodes_[n].last_use) {
    newer = oldest_;
    while (nodes_[newer].last_use <= nodes_[n].last_use) newer = nodes_[newer].newer;
  }
  const int32_t older = newer >= 0 ? nodes_[newer].older : newest_;
  nodes_[n].older = older;
  nodes_[n].newer = newer;
  (older >= 0 ? nodes_[older].newer : oldest_) = n;
  (newer >= 0 ? nodes_[newer].older : newest_) = n;
}

void PrefixCache::unlink(int32_t n) {
  const auto& node = nodes_[n];
  (node.older >= 0 ? nodes_[node.older].newer : oldest_) = node.newer;
  (node.newer >= 0 ? nodes_[node.newer].older : newest_) = node.older;
}

void PrefixCache::touch(int32_t n) {
  nodes_[n].last_use = ++clock_;
  if (nodes_[n].num_children > 0) return;  // the list holds leaves only
  unlink(n);
  link_leaf(n);
}

bool PrefixCache::evict_one() {
  // A leaf in use counts as just used; each is passed at most once.
  for (int32_t left = num_nodes_; left > 0 && oldest_ >= 0; --left) {
    const int32_t n = oldest_;
    if (pool_.idle(nodes_[n].block)) {
      remove(n);
      return true;
    }
    touch(n);
  }
  return false;
}

void PrefixCache::remove(int32_t n) {
  auto& node = nodes_[n];
  auto* link = &table_[node.hash & (table_.size() - 1)];
  while (*link != n) link = &nodes_[*link].next_in_bucket;
  *link = node.next_in_bucket;
  unlink(n);
  if (node.parent != kRoot && --nodes_[node.parent].num_children == 0) link_leaf(node.parent);
  pool_.set_cached(node.block, false);
  pool_.release(node.block);
  node.block = kNullBlock;
  unused_.push_back(n);
  --num_nodes_;
}

void PrefixCache::clear() {
  while (oldest_ >= 0) remove(oldest_);
}

std::string PrefixCache::validate() const {
  std::vector<int32_t> children(nodes_.size(), 0);
  int32_t num_nodes = 0;
  int32_t num_leaves = 0;
  for (size_t n = 0; n < nodes_.size(); ++n) {
    const auto& node = nodes_[n];
    if (node.block == kNullBlock) continue;
    ++num_nodes;
    num_leaves += node.num_children == 0;
    if (!pool_.cached(node.block)) return fmt::format("block of node {} is not marked", n);
    if (find(node.hash, node.salt, node.parent, node.tokens.data()) != static_cast<int32_t>(n)) {
      return fmt::format("node {} is not found by its key", n);
    }
    if (node.parent == kRoot) continue;
    if (nodes_[node.parent].block == kNullBlock) return fmt::format("node {} lost its parent", n);
    ++children[node.parent];
    if (pool_.idle(nodes_[node.parent].block) && !pool_.idle(node.block)) {
      return fmt::format("node {} is in use, its parent is not", n);
    }
  }
  for (size_t n = 0; n < nodes_.size(); ++n) {
    if (nodes_[n].block != kNullBlock && children[n] != nodes_[n].num_children) {
      return fmt::format("node {} has {} children, counted {}", n, children[n],
                         nodes_[n].num_children);
    }
  }
  if (num_nodes != num_nodes_) return fmt::format("{} nodes, counted {}", num_nodes, num_nodes_);
  int32_t listed = 0;
  for (int32_t n = oldest_; n >= 0; n = nodes_[n].newer) {
    if (nodes_[n].num_children > 0) return fmt::format("inner node {} is listed as a leaf", n);
    if (++listed > num_leaves) break;
  }
  if (listed != num_leaves) return fmt::format("{} leaves, {} listed", num_leaves, listed);
  return "";
}

}  // namespace keel::sched
