#include "keel/sched/draft_replay.h"

#include <deque>

#include "keel/base/error.h"
#include "keel/sched/published_drafter.h"

namespace keel::sched {
namespace {

// Whose turn it is, and what of whose text is verified.
class RoundRobin {
 public:
  explicit RoundRobin(const DraftGroupCase& group) : group_(group), done_(group.siblings.size()) {}

  // The next sibling with text left, or -1.
  int32_t next() {
    for (size_t tried = 0; tried < done_.size(); ++tried) {
      const size_t s = turn_++ % done_.size();
      if (done_[s] < group_.siblings[s].size()) return static_cast<int32_t>(s);
    }
    return -1;
  }
  std::span<const int32_t> rest(int32_t s) const {
    return std::span(group_.siblings[s]).subspan(done_[s]);
  }
  void advance(int32_t s, size_t tokens) { done_[s] += tokens; }

 private:
  const DraftGroupCase& group_;
  std::vector<size_t> done_;
  size_t turn_ = 0;
};

// What a step writes: the accepted tokens and the one that the model gives after them.
std::span<const int32_t> count_step(DraftReplay& replay, std::span<const int32_t> rest,
                                    size_t drafted, size_t accepted) {
  const auto written = rest.first(std::min(accepted + 1, rest.size()));
  replay.drafted += static_cast<int64_t>(drafted);
  replay.accepted += static_cast<int64_t>(accepted);
  replay.tokens += static_cast<int64_t>(written.size());
  return written;
}

}  // namespace

DraftReplay replay_drafts(const DraftGroupCase& group, const DraftLimits& limits, bool share) {
  DraftReplay replay;
  DraftModel model;
  constexpr int64_t kMaxTokens = 1 << 20;
  std::deque<DraftGroup> groups;
  std::vector<std::pair<DraftGroup*, int32_t>> texts;
  for (size_t s = 0; s < group.siblings.size(); ++s) {
    if (groups.empty() || !share) groups.emplace_back(model, kMaxTokens);
    texts.emplace_back(&groups.back(), groups.back().add_text(group.prompt));
  }
  RoundRobin turns(group);
  for (int32_t s = turns.next(); s >= 0; s = turns.next()) {
    auto& [drafts, text] = texts[s];
    const Draft& draft = drafts->draft(text, limits);
    const auto rest = turns.rest(s);
    replay.steps.push_back({s, draft.tokens, draft.parents});
    const auto written =
        count_step(replay, rest, draft.tokens.size(), accepted_tokens(draft, rest));
    drafts->append(text, written);
    turns.advance(s, written.size());
  }
  return replay;
}

DraftReplay replay_published_drafts(const DraftGroupCase& group, int32_t max_tokens) {
  DraftReplay replay;
  std::vector<PublishedDrafter> drafters(group.siblings.size());
  for (auto& d : drafters) {
    for (const int32_t token : group.prompt) d.append(token);
  }
  RoundRobin turns(group);
  for (int32_t s = turns.next(); s >= 0; s = turns.next()) {
    const auto draft = drafters[s].draft(max_tokens);
    const auto rest = turns.rest(s);
    size_t accepted = 0;
    while (accepted < std::min(draft.size(), rest.size()) && draft[accepted] == rest[accepted]) {
      ++accepted;
    }
    auto& step = replay.steps.emplace_back();
    step.sibling = s;
    step.tokens.assign(draft.begin(), draft.end());
    for (size_t i = 0; i < draft.size(); ++i) step.parents.push_back(static_cast<int32_t>(i) - 1);
    const auto written = count_step(replay, rest, draft.size(), accepted);
    for (const int32_t token : written) drafters[s].append(token);
    turns.advance(s, written.size());
  }
  return replay;
}

DraftGroupCase draft_group_case(const OrderedJson& row) {
  DraftGroupCase group;
  try {
    group.prompt = row.at("prompt").get<std::vector<int32_t>>();
    group.siblings = row.at("siblings").get<std::vector<std::vector<int32_t>>>();
  } catch (const OrderedJson::exception& e) {
    throw_invalid("[suffix_groups] expected lists of token ids prompt and siblings, got {}",
                  e.what());
  }
  for (const auto& s : group.siblings) {
    for (const int32_t token : s) {
      KEEL_REQUIRE(token >= 0, "[suffix_groups] expected token ids >= 0, got {}", token);
    }
  }
  return group;
}

}  // namespace keel::sched
