#include "keel/sched/prefix_cache.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace keel::sched {
namespace {

using Tokens = std::vector<int32_t>;

Tokens tokens_from(int32_t first, int32_t count) {
  Tokens t(count);
  std::iota(t.begin(), t.end(), first);
  return t;
}

// Puts whole blocks of `tokens` into the cache, as a finished sequence would; returns its blocks.
Tokens put(PrefixCache& cache, BlockPool& pool, int64_t salt, const Tokens& tokens) {
  Tokens blocks;
  int32_t node = PrefixCache::kRoot;
  for (size_t b = 0; b < tokens.size() / kBlockTokens; ++b) {
    const int32_t block = pool.allocate();
    if (block == kNullBlock) break;
    const auto in =
        cache.insert(salt, node, std::span(tokens).subspan(b * kBlockTokens, kBlockTokens), block);
    node = in.node;
    if (in.block != block) pool.retain(in.block), pool.release(block);
    blocks.push_back(in.block);
  }
  for (size_t b = blocks.size(); b-- > 0;) pool.release(blocks[b]);
  return blocks;
}

Tokens get(PrefixCache& cache, BlockPool& pool, int64_t salt, const Tokens& tokens) {
  Tokens blocks;
  cache.use(cache.lookup(salt, tokens, 1000, blocks));
  for (size_t b = blocks.size(); b-- > 0;) pool.release(blocks[b]);
  return blocks;
}

TEST(PrefixCache, FindsTheLongestPrefixOfWholeBlocks) {
  BlockPool pool(20);
  PrefixCache cache(pool);
  const auto t = tokens_from(0, 50);
  const auto blocks = put(cache, pool, 1, t);
  ASSERT_EQ(blocks.size(), 3u);
  EXPECT_EQ(get(cache, pool, 1, t), blocks);
  EXPECT_EQ(get(cache, pool, 1, tokens_from(0, 47)).size(), 2u);
  auto other = t;
  other[20] = -5;
  EXPECT_EQ(get(cache, pool, 1, other).size(), 1u);
  other[0] = -5;
  EXPECT_TRUE(get(cache, pool, 1, other).empty());
  EXPECT_TRUE(get(cache, pool, 2, t).empty()) << "other weights";
  Tokens limited;
  cache.lookup(1, t, 2, limited);
  EXPECT_EQ(limited.size(), 2u);
  EXPECT_EQ(pool.num_used(), 2);
}

TEST(PrefixCache, SameBlockTokensUnderAnotherParentAreAnotherNode) {
  BlockPool pool(20);
  PrefixCache cache(pool);
  Tokens a = tokens_from(0, 16), b = tokens_from(100, 16);
  const auto tail = tokens_from(50, 16);
  a.insert(a.end(), tail.begin(), tail.end());
  b.insert(b.end(), tail.begin(), tail.end());
  EXPECT_NE(put(cache, pool, 1, a)[1], put(cache, pool, 1, b)[1]);
  EXPECT_EQ(cache.num_nodes(), 4);
}

TEST(PrefixCache, EqualContentIsStoredOnce) {
  BlockPool pool(20);
  PrefixCache cache(pool);
  const auto t = tokens_from(0, 32);
  EXPECT_EQ(put(cache, pool, 1, t), put(cache, pool, 1, t));
  EXPECT_EQ(pool.num_idle(), 2);
  EXPECT_EQ(pool.num_used(), 0);
}

TEST(PrefixCache, EvictsWhatWasNotUsedAgainFirst) {
  BlockPool pool(20);
  PrefixCache cache(pool);
  const auto a = tokens_from(0, 32), b = tokens_from(100, 32);
  put(cache, pool, 1, a);
  put(cache, pool, 1, b);
  get(cache, pool, 1, a);
  EXPECT_TRUE(cache.evict_one());
  EXPECT_EQ(get(cache, pool, 1, a).size(), 2u);
  EXPECT_TRUE(cache.evict_one());
  EXPECT_TRUE(get(cache, pool, 1, b).empty()) << "b goes from its leaf to its root before a";
  EXPECT_EQ(get(cache, pool, 1, a).size(), 2u);
  Tokens held;
  cache.lookup(1, a, 1, held);
  EXPECT_TRUE(cache.evict_one());
  EXPECT_FALSE(cache.evict_one()) << "what is in use stays";
  pool.release(held[0]);
  EXPECT_TRUE(cache.evict_one());
  EXPECT_EQ(pool.num_free(), pool.capacity());
}

TEST(PrefixCache, ClearKeepsBlocksInUse) {
  BlockPool pool(20);
  PrefixCache cache(pool);
  const auto t = tokens_from(0, 32);
  put(cache, pool, 1, t);
  Tokens held;
  cache.lookup(1, t, 1, held);
  cache.clear();
  EXPECT_EQ(cache.num_nodes(), 0);
  EXPECT_EQ(pool.ref_count(held[0]), 1);
  EXPECT_EQ(pool.num_free(), pool.capacity() - 1);
  EXPECT_TRUE(get(cache, pool, 1, t).empty());
}

TEST(PrefixCache, WhatWaitsIsKeptAndTheSoonestLongest) {
  BlockPool pool(20);
  PrefixCache cache(pool);
  const auto a = tokens_from(0, 32), b = tokens_from(100, 32), c = tokens_from(200, 32);
  const int32_t late = cache.want(1, a, 50), soon = cache.want(1, b, 2);
  EXPECT_EQ(cache.wanted_depth(soon), 0);
  for (const auto* t : {&a, &b, &c}) put(cache, pool, 1, *t);
  EXPECT_EQ(cache.wanted_depth(soon), 2) << "tickets follow what enters";
  get(cache, pool, 1, c);
  get(cache, pool, 1, c);
  EXPECT_TRUE(cache.evict_one() && cache.evict_one());
  EXPECT_EQ(get(cache, pool, 1, b).size(), 2u);
  EXPECT_EQ(cache.wanted_depth(soon), 2);
  cache.clear();
  EXPECT_EQ(cache.wanted_depth(soon), 0);
  cache.unwant(soon, /*served=*/true);
  cache.unwant(late, /*served=*/false);
  EXPECT_EQ(cache.validate(), "");
}

// A scan over more than fits: LRU never hits, the model learns to keep a part.
TEST(PrefixCache, ScansKeepAPart) {
  BlockPool pool(101);
  PrefixCache cache(pool);
  int hits = 0, looked = 0;
  for (int round = 0; round < 12; ++round) {
    for (int32_t p = 0; p < 13; ++p) {
      const auto t = tokens_from(1000 * p, 16 * 10);
      Tokens blocks;
      const int32_t node = cache.lookup(1, t, 1000, blocks);
      cache.use(node);
      if (round >= 4) {
        hits += static_cast<int>(blocks.size());
        looked += 10;
      }
      for (size_t b = blocks.size(); b-- > 0;) pool.release(blocks[b]);
      while (pool.num_free() < 10) ASSERT_TRUE(cache.evict_one());
      put(cache, pool, 1, t);
    }
  }
  EXPECT_GT(hits, looked / 2);
}

TEST(PrefixCache, AMillionRandomOperationsKeepTheTreeRight) {
  BlockPool pool(64);
  PrefixCache cache(pool);
  std::mt19937 rng(2);
  struct Held {
    Tokens blocks;
    int32_t node;
  };
  std::vector<Held> held;
  std::vector<int32_t> tickets;
  for (int op = 0; op < 1000000; ++op) {
    Tokens t;  // few distinct blocks: many shared prefixes
    for (uint32_t b = 0, n = rng() % 6; b < n; ++b) t.insert(t.end(), 16, rng() % 3);
    const int64_t salt = rng() % 2;
    switch (rng() % 10) {
      case 0:
      case 1:
        while (pool.num_free() < 6 && cache.evict_one()) {
        }
        put(cache, pool, salt, t);
        break;
      case 2:
      case 3: {
        Held h;
        h.node = cache.lookup(salt, t, 1000, h.blocks);
        ASSERT_LE(h.blocks.size(), t.size() / kBlockTokens);
        if (held.size() < 8) {
          cache.use(h.node);
          held.push_back(h);
        } else {
          for (const int32_t b : h.blocks) pool.release(b);
        }
        break;
      }
      case 4:
      case 5:
        if (!held.empty()) {
          cache.touch(held.back().node);
          for (const int32_t b : held.back().blocks) pool.release(b);
          held.pop_back();
        }
        break;
      case 6: {
        const bool can = pool.num_idle() > 0;
        ASSERT_EQ(cache.evict_one(), can);
      } break;
      case 7:
        if (tickets.size() < 20) tickets.push_back(cache.want(salt, t, op));
        break;
      case 8:
        if (!tickets.empty()) {
          const size_t k = rng() % tickets.size();
          cache.unwant(tickets[k], rng() % 2);
          tickets.erase(tickets.begin() + static_cast<int64_t>(k));
        }
        break;
      default:
        if (rng() % 50 != 0) break;
        cache.clear();
        for (auto& h : held) h.node = PrefixCache::kRoot;
    }
    ASSERT_EQ(pool.num_used() + pool.num_idle() + pool.num_free(), pool.capacity());
    if (op % 64 != 0 && op > 20000) continue;
    ASSERT_EQ(cache.validate(), "") << op;
    ASSERT_EQ(pool.validate(), "") << op;
  }
  for (const auto& h : held) {
    for (const int32_t b : h.blocks) pool.release(b);
  }
  cache.clear();
  EXPECT_EQ(pool.num_free(), pool.capacity());
}

}  // namespace
}  // namespace keel::sched
