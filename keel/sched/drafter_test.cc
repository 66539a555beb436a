#include "keel/sched/drafter.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "keel/base/error.h"
#include "keel/base/test_data.h"
#include "keel/sched/draft_pool.h"
#include "keel/sched/draft_replay.h"
#include "keel/sched/test_cases.h"

namespace keel::sched {
namespace {

using Tokens = std::vector<int32_t>;

constexpr DraftLimits kTree = {.max_tokens = 8, .tree = true, .min_probability = 0.15};
constexpr DraftLimits kPath = {.max_tokens = 8, .tree = false, .min_probability = 0.1};

void expect_tree(const Draft& draft, const DraftLimits& limits) {
  ASSERT_EQ(draft.tokens.size(), draft.parents.size());
  ASSERT_EQ(draft.tokens.size(), draft.probabilities.size());
  ASSERT_LE(static_cast<int32_t>(draft.tokens.size()), limits.max_tokens);
  for (int32_t i = 0; i < static_cast<int32_t>(draft.tokens.size()); ++i) {
    ASSERT_GE(draft.parents[i], -1);
    ASSERT_LT(draft.parents[i], i) << "a prefix of the draft is a tree";
    if (!limits.tree) {
      ASSERT_EQ(draft.parents[i], i - 1);
    }
    ASSERT_GE(draft.probabilities[i], limits.min_probability);
    if (i > 0) {
      ASSERT_LE(draft.probabilities[i], draft.probabilities[i - 1]);
    }
    for (int32_t k = 0; k < i; ++k) {
      ASSERT_FALSE(draft.parents[k] == draft.parents[i] && draft.tokens[k] == draft.tokens[i]);
    }
  }
}

TEST(Drafter, RepeatsWhatRepeats) {
  DraftModel model;
  DraftGroup group(model, 1000);
  const Tokens period = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const int32_t t = group.add_text(period);
  for (int i = 0; i < 5; ++i) {
    group.draft(t, kPath);
    group.append(t, period);
  }
  const auto& draft = group.draft(t, kPath);
  EXPECT_EQ(draft.tokens, Tokens(period.begin(), period.begin() + 8));
  EXPECT_GT(draft.probabilities.back(), 0.5);
}

TEST(Drafter, SiblingsAndReferencesAreSeenOthersNot) {
  DraftModel model;
  DraftGroup group(model, 1000);
  const Tokens prompt = {1, 2, 3};
  const int32_t a = group.add_text(prompt), b = group.add_text(prompt);
  EXPECT_TRUE(group.draft(a, kTree).tokens.empty());
  group.append(a, Tokens{50, 51, 52, 53});
  EXPECT_EQ(group.draft(b, kTree).tokens.front(), 50);
  EXPECT_EQ(group.num_tokens(), 7) << "the prompt is counted once";
  group.append(b, Tokens{60});
  group.finish(a);
  group.append(b, Tokens{50, 51});
  EXPECT_EQ(group.draft(b, kTree).tokens.front(), 52) << "finished texts stay";

  DraftGroup alone(model, 1000);
  const int32_t c = alone.add_text(prompt);
  EXPECT_TRUE(alone.draft(c, kTree).tokens.empty());
  alone.add_reference(prompt, Tokens{70, 71, 72});
  EXPECT_EQ(alone.draft(c, kTree).tokens.front(), 70);
}

TEST(Drafter, AcceptedTokensFollowsTheTree) {
  const Draft draft{{5, 6, 7, 8}, {-1, -1, 1, 2}, {0.5F, 0.4F, 0.3F, 0.2F}};
  EXPECT_EQ(accepted_tokens(draft, Tokens{6, 7, 8, 9}), 3);
  EXPECT_EQ(accepted_tokens(draft, Tokens{5, 7}), 1);
  EXPECT_EQ(accepted_tokens(draft, Tokens{6, 7}), 2);
  EXPECT_EQ(accepted_tokens(draft, Tokens{9}), 0);
  EXPECT_EQ(accepted_tokens(draft, {}), 0);
}

TEST(Drafter, CostModelTurnsDraftingOff) {
  // One more row in a step of 1000 us costs 1 us: nearly any guess pays; with full batches none.
  EXPECT_LT(worthwhile_probability({.fixed_us = 1000, .row_us = 1}, 1, 2, 4), 0.003);
  EXPECT_GT(worthwhile_probability({.fixed_us = 1000, .row_us = 100}, 512, 1, 1), 0.97);
  EXPECT_EQ(worthwhile_probability({.fixed_us = 0, .row_us = 1}, 8, 3, 2), 1.0);
  EXPECT_EQ(worthwhile_probability({.fixed_us = 10, .row_us = 0}, 8, 3, 2), 0.0);
}

TEST(Drafter, ForgetsTheOldestHalf) {
  DraftModel model;
  DraftGroup group(model, 200);
  const Tokens prompt = {1, 2, 3};
  const int32_t t = group.add_text(prompt);
  group.add_reference(prompt, Tokens(90, 7));
  for (int32_t i = 0; i < 3000; ++i) {
    group.draft(t, kTree);
    group.append(t, Tokens{100 + i % 10});
    ASSERT_LE(group.num_tokens(), 200);
  }
  EXPECT_EQ(group.automaton().find(SuffixAutomaton::kRoot, 7), SuffixAutomaton::kNone);
  EXPECT_EQ(group.draft(t, kTree).tokens.front(), 100);
  EXPECT_EQ(group.automaton().validate(), "");
  EXPECT_LT(group.memory_bytes(), 100000);
  DraftGroup long_prompt(model, 64);
  long_prompt.add_text(Tokens(1000, 3));
  EXPECT_LE(long_prompt.num_tokens(), 64);
  EXPECT_THROW(DraftGroup(model, 10), Error);
}

void expect_published(const OrderedJson& row) {
  auto group = draft_group_case(row);
  group.siblings.resize(4);
  for (const int k : {3, 8}) {
    const auto& want = row["values"]["sam_own_" + std::to_string(k) + "_first4"];
    const auto got = replay_published_drafts(group, k);
    EXPECT_EQ(static_cast<int64_t>(got.steps.size()), want["steps"].get<int64_t>()) << row["id"];
    EXPECT_EQ(got.drafted, want["drafted"].get<int64_t>());
    EXPECT_EQ(got.accepted, want["accepted"].get<int64_t>());
    EXPECT_EQ(got.tokens, want["tokens"].get<int64_t>());
  }
}

TEST(Drafter, GoldenGroup) {
  for (const auto& row : test::read_cases(keel::test::golden("sched/suffix_groups.jsonl"))) {
    expect_published(row);
    const auto group = draft_group_case(row);
    const auto replay = replay_drafts(group, kTree, /*share=*/true);
    const auto again = replay_drafts(group, kTree, true);
    ASSERT_EQ(replay.steps.size(), again.steps.size());
    for (size_t i = 0; i < replay.steps.size(); ++i) {
      ASSERT_EQ(replay.steps[i].tokens, again.steps[i].tokens) << "not deterministic";
      expect_tree({replay.steps[i].tokens, replay.steps[i].parents,
                   std::vector<float>(replay.steps[i].tokens.size(), 1)},
                  kTree);
    }
    EXPECT_GT(replay.tokens_per_step(), replay_published_drafts(group, 8).tokens_per_step() * 1.2);
  }
}

TEST(Drafter, BeatsSuffixDecodingOnTheCases) {
  const auto path = keel::test::cases("suffix_groups.jsonl");
  if (path.empty()) GTEST_SKIP() << "no ../shared/cases/suffix_groups.jsonl";
  struct Sum {
    double tokens = 0, steps = 0, drafted = 0, accepted = 0;
    void add(const DraftReplay& r) {
      tokens += static_cast<double>(r.tokens);
      steps += static_cast<double>(r.steps.size());
      drafted += static_cast<double>(r.drafted);
      accepted += static_cast<double>(r.accepted);
    }
  } shared, shared_path, own;
  for (const auto& row : test::read_cases(path)) {
    if (!row.contains("siblings")) continue;
    expect_published(row);
    const auto group = draft_group_case(row);
    shared.add(replay_drafts(group, kTree, true));
    shared_path.add(replay_drafts(group, kPath, true));
    own.add(replay_drafts(group, {.min_probability = 0.177}, false));
  }
  EXPECT_GE(shared.tokens / shared.steps, 3.2);
  EXPECT_GE(shared.accepted / shared.drafted, 0.45);
  EXPECT_GE(shared_path.tokens / shared_path.steps, 3.2);
  EXPECT_GE(shared_path.accepted / shared_path.drafted, 0.45);
  EXPECT_GE(own.tokens / own.steps, 1.9);
  EXPECT_GE(own.accepted / own.drafted, 0.45);
}

// Any interleaving of requests, drafts, appends and ends under tight bounds.
RC_GTEST_PROP(DraftPool, KeepsItsBoundsAndCounts, ()) {
  DraftPoolConfig config;
  config.max_tokens = *rc::gen::inRange(64, 400);
  config.max_group_tokens = *rc::gen::inRange(64, 400);
  config.share = *rc::gen::arbitrary<bool>();
  DraftPool pool(config);
  std::vector<int32_t> live;
  const auto ops = *rc::gen::container<std::vector<std::tuple<int, uint32_t, Tokens>>>(
      rc::gen::tuple(rc::gen::inRange(0, 8), rc::gen::arbitrary<uint32_t>(),
                     rc::gen::container<Tokens>(rc::gen::inRange(0, 4))));
  for (const auto& [op, pick, tokens] : ops) {
    if (op == 0 || live.empty()) {
      live.push_back(pool.start(static_cast<int64_t>(pick % 4) - 1, tokens));
    } else if (op == 1) {
      pool.finish(live[pick % live.size()]);
      live.erase(live.begin() + pick % live.size());
    } else if (op == 2) {
      pool.add_reference(pick % 3, tokens, tokens);
    } else {
      const int32_t r = live[pick % live.size()];
      const DraftLimits limits = {.max_tokens = static_cast<int32_t>(pick % 10),
                                  .tree = pick % 2 == 0,
                                  .min_probability = 0.05};
      expect_tree(pool.draft(r, limits), limits);
      pool.append(r, tokens);
    }
    RC_ASSERT(pool.validate() == "");
  }
  for (const int32_t r : live) pool.finish(r);
  RC_ASSERT(pool.validate() == "");
}

TEST(DraftPool, NextEpochDraftsFromThisOne) {
  DraftPool pool({});
  const Tokens prompt = {1, 2, 3}, answer = {10, 11, 12, 13, 14};
  const int32_t first = pool.start(5, prompt);
  pool.append(first, answer);
  pool.finish(first);
  const int32_t second = pool.start(5, prompt);
  EXPECT_EQ(pool.draft(second, kTree).tokens.front(), 10);
  pool.finish(second);
  EXPECT_EQ(pool.num_groups(), 1);
  const int32_t other = pool.start(-1, prompt);
  EXPECT_TRUE(pool.draft(other, kTree).tokens.empty());
  pool.finish(other);
  EXPECT_EQ(pool.num_groups(), 1);
}

}  // namespace
}  // namespace keel::sched
