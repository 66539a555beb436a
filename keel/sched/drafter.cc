#include "keel/sched/drafter.h"

#include <algorithm>

#include "keel/base/error.h"

namespace keel::sched {

double worthwhile_probability(const VerifyCost& cost, int32_t batch, double tokens_per_step,
                              double rows_per_request) {
  const double step_us = cost.fixed_us + cost.row_us * batch * rows_per_request;
  return std::min(1.0, cost.row_us * batch * tokens_per_step / step_us);
}

int32_t accepted_tokens(const Draft& draft, std::span<const int32_t> truth) {
  int32_t at = -1, accepted = 0;
  for (int32_t i = 0; i < static_cast<int32_t>(draft.tokens.size()); ++i) {
    if (accepted == static_cast<int32_t>(truth.size())) break;
    if (draft.parents[i] != at || draft.tokens[i] != truth[accepted]) continue;
    at = i;
    ++accepted;
  }
  return accepted;
}

DraftGroup::DraftGroup(DraftModel& model, int64_t max_tokens)
    : model_(model), max_tokens_(max_tokens) {
  KEEL_REQUIRE(max_tokens >= 64, "[sched.draft_tokens] expected >= 64, got {}", max_tokens);
}

int32_t DraftGroup::add_text(std::span<const int32_t> prompt) {
  if (all_.empty()) {
    prompt_.assign(prompt.begin(), prompt.end());
    num_tokens_ += static_cast<int64_t>(prompt.size());
    for (size_t i = 0; i < prompt.size(); ++i) {
      prompt_state_ = texts_.extend(prompt_state_, prompt[i], static_cast<int32_t>(i));
    }
  }
  all_.emplace_back();
  auto& text = all_.back();
  text.after_prompt = std::equal(prompt.begin(), prompt.end(), prompt_.begin(), prompt_.end());
  if (text.after_prompt) {
    text.state = prompt_state_;
  } else {
    grow(text, prompt);
  }
  bound_memory();
  return static_cast<int32_t>(all_.size()) - 1;
}

void DraftGroup::add_reference(std::span<const int32_t> prompt, std::span<const int32_t> answer) {
  const int32_t text = add_text(prompt);
  append(text, answer);
  finish(text);
}

void DraftGroup::grow(Text& text, std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) {
    text.state = texts_.extend(text.state, token, static_cast<int32_t>(text.tokens.size()));
    text.tokens.push_back(token);
  }
  num_tokens_ += static_cast<int64_t>(tokens.size());
}

int32_t DraftGroup::last_token(const Text& text) const {
  if (!text.tokens.empty()) return text.tokens.back();
  return text.after_prompt && !prompt_.empty() ? prompt_.back() : -1;
}

void DraftGroup::expand(int32_t parent, int32_t state, int32_t matched, int32_t last,
                        float probability, const DraftLimits& limits) {
  const size_t at = static_cast<size_t>(parent) + 1;
  if (contexts_.size() <= at) contexts_.resize(at + 1);
  auto& context = contexts_[at];
  model_.predict(texts_, state, matched, last, context);
  const auto open = [&](int32_t c) {
    const float p = probability * context.probabilities[c];
    if (p < limits.min_probability) return;
    open_.push_back({parent, context.tokens[c], context.targets[c], context.matched[c], p});
  };
  int32_t best = 0;
  for (int32_t c = 0; c < context.num_candidates; ++c) {
    if (limits.tree) open(c);
    if (context.probabilities[c] > context.probabilities[best]) best = c;
  }
  if (!limits.tree && context.num_candidates > 0) open(best);
}

const Draft& DraftGroup::draft(int32_t text, const DraftLimits& limits) {
  KEEL_CHECK(all_[text].live, "draft for text {} that is finished", text);
  draft_.tokens.clear();
  draft_.parents.clear();
  draft_.probabilities.clear();
  drafted_text_ = text;
  open_.clear();
  const auto& t = all_[text];
  expand(-1, t.state, texts_.length(t.state), last_token(t), 1, limits);
  while (!open_.empty() && static_cast<int32_t>(draft_.tokens.size()) < limits.max_tokens) {
    size_t best = 0;  // the earliest of equals
    for (size_t i = 1; i < open_.size(); ++i) {
      if (open_[i].probability > open_[best].probability) best = i;
    }
    const Node node = open_[best];
    open_.erase(open_.begin() + static_cast<int64_t>(best));
    const auto i = static_cast<int32_t>(draft_.tokens.size());
    draft_.tokens.push_back(node.token);
    draft_.parents.push_back(node.parent);
    draft_.probabilities.push_back(node.probability);
    expand(i, node.target, node.matched, node.token, node.probability, limits);
  }
  return draft_;
}

void DraftGroup::append(int32_t text, std::span<const int32_t> tokens) {
  auto& t = all_[text];
  KEEL_CHECK(t.live, "tokens for text {} that is finished", text);
  if (drafted_text_ == text) {
    int32_t at = -1;
    for (const int32_t token : tokens) {
      model_.learn(contexts_[at + 1], token);
      int32_t next = at + 1;
      const auto end = static_cast<int32_t>(draft_.tokens.size());
      while (next < end && (draft_.parents[next] != at || draft_.tokens[next] != token)) ++next;
      if (next == end) break;
      at = next;
    }
    drafted_text_ = -1;
  }
  grow(t, tokens);
  bound_memory();
}

void DraftGroup::finish(int32_t text) {
  all_[text].live = false;
  if (drafted_text_ == text) drafted_text_ = -1;
}

void DraftGroup::bound_memory() {
  if (num_tokens_ > max_tokens_) forget(max_tokens_ / 2);
}

void DraftGroup::shrink(int64_t max_tokens) {
  if (num_tokens_ > max_tokens) forget(max_tokens / 2);
}

void DraftGroup::forget(int64_t goal) {
  const auto drop = [&](Text& text, size_t keep) {
    const size_t gone = text.tokens.size() - std::min(keep, text.tokens.size());
    text.tokens.erase(text.tokens.begin(), text.tokens.begin() + static_cast<int64_t>(gone));
    if (gone > 0) text.after_prompt = false;
    num_tokens_ -= static_cast<int64_t>(gone);
  };
  size_t num_live = 0;
  for (auto& text : all_) {
    num_live += text.live;
    if (!text.live && num_tokens_ > goal) drop(text, 0);
  }
  const auto room = std::max<int64_t>(0, goal - static_cast<int64_t>(prompt_.size()));
  if (num_tokens_ > goal) {
    for (auto& text : all_) {
      if (text.live) drop(text, static_cast<size_t>(room) / num_live);
    }
  }
  if (num_tokens_ > goal) {  // the prompt alone is too long: its end matters most
    const int64_t gone = num_tokens_ - goal;
    prompt_.erase(prompt_.begin(), prompt_.begin() + gone);
    num_tokens_ = goal;
  }
  rebuild();
}

void DraftGroup::rebuild() {
  texts_.clear();
  drafted_text_ = -1;
  num_tokens_ = static_cast<int64_t>(prompt_.size());
  prompt_state_ = SuffixAutomaton::kRoot;
  for (size_t i = 0; i < prompt_.size(); ++i) {
    prompt_state_ = texts_.extend(prompt_state_, prompt_[i], static_cast<int32_t>(i));
  }
  for (auto& text : all_) {
    text.state = text.after_prompt ? prompt_state_ : SuffixAutomaton::kRoot;
    const auto tokens = std::move(text.tokens);
    text.tokens.clear();
    grow(text, tokens);
  }
}

int64_t DraftGroup::memory_bytes() const {
  int64_t bytes =
      texts_.memory_bytes() + static_cast<int64_t>(prompt_.capacity() * sizeof(int32_t));
  for (const auto& text : all_) {
    bytes += static_cast<int64_t>(text.tokens.capacity() * sizeof(int32_t) + sizeof(Text));
  }
  return bytes;
}

}  // namespace keel::sched
