#include "keel/sched/suffix_automaton.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

namespace keel::sched {
namespace {

using Tokens = std::vector<int32_t>;

// How often each token followed `context` in `texts`.
std::map<int32_t, int32_t> brute_force(const std::vector<Tokens>& texts, const Tokens& context) {
  std::map<int32_t, int32_t> counts;
  for (const auto& text : texts) {
    for (size_t i = 0; i + context.size() < text.size(); ++i) {
      if (std::equal(context.begin(), context.end(), text.begin() + static_cast<int64_t>(i))) {
        ++counts[text[i + context.size()]];
      }
    }
  }
  return counts;
}

std::map<int32_t, int32_t> followers(const SuffixAutomaton& sam, int32_t state) {
  std::map<int32_t, int32_t> counts;
  for (int32_t e = sam.first_edge(state); e != SuffixAutomaton::kNone; e = sam.edge(e).next) {
    counts[sam.edge(e).token] = sam.edge(e).count;
  }
  return counts;
}

// Interleaved texts; every suffix of every text must count what followed it anywhere.
RC_GTEST_PROP(SuffixAutomaton, CountsWhatFollowedEverySuffix, ()) {
  const auto num_texts = *rc::gen::inRange<size_t>(1, 5);
  const auto alphabet = *rc::gen::inRange(1, 6);
  const auto steps = *rc::gen::container<std::vector<std::pair<size_t, int32_t>>>(
      rc::gen::pair(rc::gen::inRange<size_t>(0, num_texts), rc::gen::inRange(0, alphabet)));
  SuffixAutomaton sam;
  std::vector<Tokens> texts(num_texts);
  std::vector<int32_t> ends(num_texts, SuffixAutomaton::kRoot);
  for (const auto& [t, token] : steps) {
    ends[t] = sam.extend(ends[t], token, static_cast<int32_t>(texts[t].size()));
    texts[t].push_back(token);
  }
  RC_ASSERT(sam.validate() == "");
  RC_ASSERT(sam.num_states() <= static_cast<int64_t>(2 * steps.size() + 1));
  for (size_t t = 0; t < num_texts; ++t) {
    int32_t state = ends[t];
    RC_ASSERT(sam.length(state) == static_cast<int32_t>(texts[t].size()));
    for (size_t first = 0; first <= texts[t].size(); ++first) {
      const Tokens suffix(texts[t].begin() + static_cast<int64_t>(first), texts[t].end());
      const auto length = static_cast<int32_t>(suffix.size());
      while (length > 0 && sam.length(sam.link(state)) >= length) state = sam.link(state);
      if (length == 0) state = SuffixAutomaton::kRoot;
      RC_ASSERT(followers(sam, state) == brute_force(texts, suffix));
    }
  }
}

TEST(SuffixAutomaton, LargeStatesUseTheTable) {
  SuffixAutomaton sam;
  int32_t end = SuffixAutomaton::kRoot;
  for (int32_t i = 0; i < 5000; ++i) end = sam.extend(end, i * 7919 % 1000, i);
  EXPECT_EQ(sam.degree(SuffixAutomaton::kRoot), 1000);
  EXPECT_EQ(sam.total(SuffixAutomaton::kRoot), 5000);
  EXPECT_EQ(sam.find(SuffixAutomaton::kRoot, 1000), SuffixAutomaton::kNone);
  EXPECT_EQ(sam.validate(), "");
  sam.clear();
  EXPECT_EQ(sam.num_states(), 1);
  EXPECT_EQ(sam.find(SuffixAutomaton::kRoot, 5), SuffixAutomaton::kNone);
}

}  // namespace
}  // namespace keel::sched
