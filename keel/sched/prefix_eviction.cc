// PrefixCache: which block to give up, and what is known about future uses.
#include <algorithm>

#include "keel/base/rng.h"
#include "keel/sched/prefix_cache.h"

namespace keel::sched {
namespace {

constexpr size_t kSampledLeaves = 64;

}  // namespace

// Expected hits for each block that enters the cache meanwhile.
float PrefixCache::worth(int32_t n) const {
  const auto& node = nodes_[n];
  const float unknown = reuse_.index(node.uses, clock_ - node.last_use);
  if (node.first_want < 0) return unknown;
  const auto ahead =
      static_cast<double>(std::max<int64_t>(1, tickets_[node.first_want].order - served_order_));
  return std::max(unknown, static_cast<float>(1 / (1 + ahead * blocks_per_served_)));
}

// Few leaves are compared all, many by a fixed number of draws (as in LHD, NSDI 2018).
int32_t PrefixCache::least_worth(float& next_worth) const {
  int32_t best = kRoot;
  float best_worth = 0;
  const auto consider = [&](int32_t n) {
    if (!pool_.idle(nodes_[n].block)) return;
    const float w = worth(n);
    if (best == kRoot || w < best_worth ||
        (w == best_worth && nodes_[n].last_use < nodes_[best].last_use)) {
      if (best != kRoot) next_worth = best_worth;
      best = n;
      best_worth = w;
    } else if (n != best) {
      next_worth = std::min(next_worth, w);
    }
  };
  if (leaves_.size() > kSampledLeaves) {
    for (size_t i = 0; i < kSampledLeaves; ++i) {
      consider(leaves_[uniform_int(leaves_.size(), static_cast<uint64_t>(clock_), num_nodes_, i)]);
    }
  }
  if (best == kRoot) {
    for (const int32_t n : leaves_) consider(n);
  }
  return best;
}

bool PrefixCache::evict_one() {
  int32_t n = victim_;
  const bool again = n != kRoot && nodes_[n].block != kNullBlock && nodes_[n].leaf >= 0 &&
                     pool_.idle(nodes_[n].block) && worth(n) <= victim_limit_;
  if (!again) {
    victim_limit_ = 1;
    n = least_worth(victim_limit_);
  }
  if (n == kRoot) return false;
  victim_ = nodes_[n].parent;
  remember(nodes_[n]);
  remove(n);
  return true;
}

void PrefixCache::remember(const Node& node) {
  if (ghosts_.emplace(node.hash, Ghost{node.last_use, node.uses}).second) {
    ghost_order_.push_back(node.hash);
  }
  const size_t limit = 4 * static_cast<size_t>(pool_.capacity());
  while (ghost_order_.size() > limit) {
    ghosts_.erase(ghost_order_.front());
    ghost_order_.pop_front();
  }
}

void PrefixCache::take_census() {
  next_census_ = clock_ + std::max(16, pool_.capacity() / 4);
  ReuseModel::Census unused{};
  const auto add = [&](int32_t uses, int64_t last_use) {
    const int64_t age = clock_ - last_use;
    unused[ReuseModel::class_of(uses)][reuse_.age_class(age)] += 1;
  };
  for (const auto& node : nodes_) {
    if (node.block != kNullBlock && pool_.idle(node.block)) add(node.uses, node.last_use);
  }
  std::erase_if(ghosts_,
                [&](const auto& g) { return clock_ - g.second.last_use > reuse_.max_age(); });
  for (const auto& [hash, ghost] : ghosts_) add(ghost.uses, ghost.last_use);
  reuse_.refresh(unused);
}

int32_t PrefixCache::find_hash(uint64_t hash) const {
  int32_t n = table_[hash & (table_.size() - 1)];
  while (n >= 0 && nodes_[n].hash != hash) n = nodes_[n].next_in_bucket;
  return n;
}

int32_t PrefixCache::want(int64_t salt, std::span<const int32_t> tokens, int64_t order) {
  int32_t t = static_cast<int32_t>(tickets_.size());
  if (unused_tickets_.empty()) {
    tickets_.emplace_back();
  } else {
    t = unused_tickets_.back();
    unused_tickets_.pop_back();
  }
  auto& ticket = tickets_[t];
  ticket = Ticket{};
  ticket.order = order;
  ticket.live = true;
  uint64_t hash = hash_root(salt);
  for (size_t b = 0; b < tokens.size() / kBlockTokens; ++b) {
    hash = hash_block(hash, tokens.data() + b * kBlockTokens);
    ticket.hashes.push_back(hash);
  }
  int32_t node = kRoot, depth = 0;
  for (; depth < static_cast<int32_t>(ticket.hashes.size()); ++depth) {
    const int32_t next = find_hash(ticket.hashes[depth]);
    if (next < 0) break;
    node = next;
  }
  attach(t, node, depth);
  return t;
}

void PrefixCache::unwant(int32_t t, bool served) {
  if (served) {
    served_order_ = std::max(served_order_, tickets_[t].order);
    const auto entered = static_cast<double>(clock_ - served_clock_);
    blocks_per_served_ += (entered - blocks_per_served_) / 16;
    served_clock_ = clock_;
  }
  detach(t);
  tickets_[t].live = false;
  unused_tickets_.push_back(t);
}

// The ticket's cached prefix ends in `node`, `depth` blocks deep.
void PrefixCache::attach(int32_t t, int32_t node, int32_t depth) {
  auto& ticket = tickets_[t];
  ticket.node = node;
  ticket.depth = depth;
  ticket.next = ticket.prev = -1;
  if (node != kRoot) {
    auto& n = nodes_[node];
    ticket.prev = n.last_want;
    (n.last_want >= 0 ? tickets_[n.last_want].next : n.first_want) = t;
    n.last_want = t;
  }
  ticket.next_missing = ticket.prev_missing = -1;
  if (depth == static_cast<int32_t>(ticket.hashes.size())) return;
  auto [head, fresh] = missing_.emplace(ticket.hashes[depth], t);
  if (fresh) return;
  ticket.next_missing = head->second;
  tickets_[head->second].prev_missing = t;
  head->second = t;
}

void PrefixCache::detach(int32_t t) {
  const auto& ticket = tickets_[t];
  if (ticket.node != kRoot) {
    auto& n = nodes_[ticket.node];
    (ticket.prev >= 0 ? tickets_[ticket.prev].next : n.first_want) = ticket.next;
    (ticket.next >= 0 ? tickets_[ticket.next].prev : n.last_want) = ticket.prev;
  }
  if (ticket.depth == static_cast<int32_t>(ticket.hashes.size())) return;
  if (ticket.next_missing >= 0) tickets_[ticket.next_missing].prev_missing = ticket.prev_missing;
  if (ticket.prev_missing >= 0) {
    tickets_[ticket.prev_missing].next_missing = ticket.next_missing;
  } else if (ticket.next_missing >= 0) {
    missing_[ticket.hashes[ticket.depth]] = ticket.next_missing;
  } else {
    missing_.erase(ticket.hashes[ticket.depth]);
  }
}

// The block that the ticket missed is here.
void PrefixCache::advance(int32_t t) {
  detach(t);
  const auto& hashes = tickets_[t].hashes;
  int32_t node = tickets_[t].node, depth = tickets_[t].depth;
  for (; depth < static_cast<int32_t>(hashes.size()); ++depth) {
    const int32_t next = find_hash(hashes[depth]);
    if (next < 0) break;
    node = next;
  }
  attach(t, node, depth);
}

}  // namespace keel::sched
