#include "keel/sched/prefix_cache.h"

#include <algorithm>

#include "keel/base/error.h"
#include "keel/base/rng.h"

namespace keel::sched {

uint64_t PrefixCache::hash_block(uint64_t before, const int32_t* tokens) {
  uint64_t h = before;
  for (int i = 0; i < kBlockTokens; i += 2) {
    const uint64_t pair = static_cast<uint64_t>(static_cast<uint32_t>(tokens[i])) << 32 |
                          static_cast<uint32_t>(tokens[i + 1]);
    h = mix_key(h, pair);
  }
  return h;
}

uint64_t PrefixCache::hash_root(int64_t salt) {
  return mix_key(0x6b65656cU, static_cast<uint64_t>(salt));
}

PrefixCache::PrefixCache(BlockPool& pool) : pool_(pool), reuse_(pool.capacity()), table_(64, -1) {}

uint64_t PrefixCache::hash_after(int64_t salt, int32_t parent, const int32_t* tokens) const {
  return hash_block(parent == kRoot ? hash_root(salt) : nodes_[parent].hash, tokens);
}

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

int32_t PrefixCache::child(int64_t salt, int32_t parent, std::span<const int32_t> tokens) const {
  return find(hash_after(salt, parent, tokens.data()), salt, parent, tokens.data());
}

int32_t PrefixCache::lookup(int64_t salt, std::span<const int32_t> tokens, int32_t max_blocks,
                            std::vector<int32_t>& blocks) {
  int32_t parent = kRoot;
  const auto limit = std::min<int64_t>(max_blocks, tokens.size() / kBlockTokens);
  for (int64_t b = 0; b < limit; ++b) {
    const int32_t n = child(salt, parent, tokens.subspan(b * kBlockTokens, kBlockTokens));
    if (n < 0) break;
    pool_.retain(nodes_[n].block);
    blocks.push_back(nodes_[n].block);
    parent = n;
  }
  return parent;
}

void PrefixCache::use(int32_t n) {
  for (; n != kRoot; n = nodes_[n].parent) {
    auto& node = nodes_[n];
    // Held by others as well: it would be here under any rule, so it teaches nothing.
    if (pool_.ref_count(node.block) == 2) reuse_.reused(node.uses, clock_ - node.last_use);
    ++node.uses;
    node.last_use = clock_;
  }
}

void PrefixCache::touch(int32_t n) {
  for (; n != kRoot; n = nodes_[n].parent) nodes_[n].last_use = clock_;
}

PrefixCache::Inserted PrefixCache::insert(int64_t salt, int32_t parent,
                                          std::span<const int32_t> tokens, int32_t block) {
  KEEL_CHECK(tokens.size() == kBlockTokens, "{} tokens in a block", tokens.size());
  const uint64_t hash = hash_after(salt, parent, tokens.data());
  if (const int32_t n = find(hash, salt, parent, tokens.data()); n >= 0) {
    nodes_[n].last_use = clock_;
    return {n, nodes_[n].block};
  }
  KEEL_CHECK(!pool_.cached(block), "block {} is in the prefix cache already", block);
  if (++clock_ >= next_census_) take_census();
  const int32_t n = new_node();
  auto& node = nodes_[n];
  node = Node{};
  node.salt = salt;
  node.hash = hash;
  std::copy(tokens.begin(), tokens.end(), node.tokens.begin());
  node.block = block;
  node.parent = parent;
  node.last_use = clock_;
  pool_.retain(block);
  pool_.set_cached(block, true);
  auto& head = table_[hash & (table_.size() - 1)];
  node.next_in_bucket = head;
  head = n;
  if (const auto ghost = ghosts_.find(hash); ghost != ghosts_.end()) {
    reuse_.reused(ghost->second.uses, clock_ - ghost->second.last_use);
    node.uses = ghost->second.uses + 1;
    ghosts_.erase(ghost);
  }
  if (parent != kRoot && nodes_[parent].num_children++ == 0) remove_leaf(parent);
  add_leaf(n);
  if (const auto found = missing_.find(hash); found != missing_.end()) {
    for (int32_t t = found->second, next = -1; t >= 0; t = next) {
      next = tickets_[t].next_missing;
      advance(t);
    }
  }
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

void PrefixCache::add_leaf(int32_t n) {
  nodes_[n].leaf = static_cast<int32_t>(leaves_.size());
  leaves_.push_back(n);
}

void PrefixCache::remove_leaf(int32_t n) {
  const int32_t at = nodes_[n].leaf;
  leaves_[at] = leaves_.back();
  nodes_[leaves_[at]].leaf = at;
  leaves_.pop_back();
  nodes_[n].leaf = -1;
}

void PrefixCache::remove(int32_t n) {
  auto& node = nodes_[n];
  for (int32_t t = node.first_want, next = -1; t >= 0; t = next) {
    next = tickets_[t].next;
    const int32_t depth = tickets_[t].depth;
    detach(t);
    attach(t, node.parent, depth - 1);
  }
  auto* link = &table_[node.hash & (table_.size() - 1)];
  while (*link != n) link = &nodes_[*link].next_in_bucket;
  *link = node.next_in_bucket;
  remove_leaf(n);
  if (node.parent != kRoot && --nodes_[node.parent].num_children == 0) add_leaf(node.parent);
  pool_.set_cached(node.block, false);
  pool_.release(node.block);
  node.block = kNullBlock;
  unused_.push_back(n);
  --num_nodes_;
}

void PrefixCache::clear() {
  while (!leaves_.empty()) remove(leaves_.back());
  ghosts_.clear();
  ghost_order_.clear();
  victim_ = kRoot;
}

std::string PrefixCache::validate() const {
  std::vector<int32_t> children(nodes_.size(), 0);
  int32_t num_nodes = 0;
  size_t num_leaves = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const auto& node = nodes_[i];
    const auto n = static_cast<int32_t>(i);
    if (node.block == kNullBlock) continue;
    ++num_nodes;
    if (!pool_.cached(node.block)) return fmt::format("block of node {} is not marked", n);
    if (find(node.hash, node.salt, node.parent, node.tokens.data()) != n) {
      return fmt::format("node {} is not found by its key", n);
    }
    const bool leaf = node.leaf >= 0;
    num_leaves += leaf;
    if (leaf != (node.num_children == 0) || (leaf && leaves_[node.leaf] != n)) {
      return fmt::format("node {} with {} children is listed wrongly", n, node.num_children);
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
  if (num_leaves != leaves_.size()) return "the list of leaves has other nodes";
  for (size_t t = 0; t < tickets_.size(); ++t) {
    const auto& ticket = tickets_[t];
    if (!ticket.live) continue;
    const bool all = ticket.depth == static_cast<int32_t>(ticket.hashes.size());
    if (ticket.node != kRoot && nodes_[ticket.node].hash != ticket.hashes[ticket.depth - 1]) {
      return fmt::format("ticket {} stands at another prefix", t);
    }
    if (!all && find_hash(ticket.hashes[ticket.depth]) >= 0) {
      return fmt::format("ticket {} stands short of what is cached", t);
    }
  }
  return "";
}

}  // namespace keel::sched
