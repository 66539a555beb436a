#include "keel/sched/draft_pool.h"

#include <algorithm>

#include "keel/base/error.h"

namespace keel::sched {

DraftPool::DraftPool(const DraftPoolConfig& config) : config_(config) {
  KEEL_REQUIRE(config.max_tokens >= 64, "[sched.draft_tokens] expected >= 64, got {}",
               config.max_tokens);
  KEEL_REQUIRE(config.max_group_tokens >= 64, "[sched.draft_group_tokens] expected >= 64, got {}",
               config.max_group_tokens);
  config_.max_group_tokens = std::min(config.max_group_tokens, config.max_tokens);
}

DraftPool::Group& DraftPool::open(int64_t key) {
  auto& group = groups_[key];
  if (group == nullptr) {
    group = std::make_unique<Group>(model_, config_.max_group_tokens);
  } else if (group->num_live == 0) {
    idle_.erase(group->idle);
  }
  ++group->num_live;
  return *group;
}

void DraftPool::settle(Group& group) {
  num_tokens_ += group.drafts.num_tokens() - group.tokens;
  group.tokens = group.drafts.num_tokens();
}

void DraftPool::close(int64_t key) {
  auto& group = *groups_.at(key);
  if (--group.num_live > 0) return;
  if (key < 0) {  // nobody can come back to it
    num_tokens_ -= group.tokens;
    groups_.erase(key);
  } else {
    group.idle = idle_.insert(idle_.end(), key);
  }
}

void DraftPool::evict() {
  while (num_tokens_ > config_.max_tokens && !idle_.empty()) {
    num_tokens_ -= groups_.at(idle_.front())->tokens;
    groups_.erase(idle_.front());
    idle_.pop_front();
  }
  if (num_tokens_ <= config_.max_tokens) return;
  // Only live groups are left: each keeps its share.
  const int64_t share = std::max<int64_t>(64, config_.max_tokens / num_groups());
  for (auto& [key, group] : groups_) {
    group->drafts.shrink(share);
    settle(*group);
  }
}

int32_t DraftPool::start(int64_t group, std::span<const int32_t> prompt) {
  const int64_t key = group >= 0 && config_.share ? group : next_private_key_--;
  auto& g = open(key);
  int32_t handle = static_cast<int32_t>(requests_.size());
  if (unused_.empty()) {
    requests_.emplace_back();
  } else {
    handle = unused_.back();
    unused_.pop_back();
  }
  requests_[handle] = {key, g.drafts.add_text(prompt)};
  settle(g);
  evict();
  return handle;
}

const Draft& DraftPool::draft(int32_t handle, const DraftLimits& limits) {
  const auto& r = requests_[handle];
  return groups_.at(r.key)->drafts.draft(r.text, limits);
}

void DraftPool::append(int32_t handle, std::span<const int32_t> tokens) {
  const auto& r = requests_[handle];
  auto& g = *groups_.at(r.key);
  g.drafts.append(r.text, tokens);
  settle(g);
  evict();
}

void DraftPool::finish(int32_t handle) {
  auto& r = requests_[handle];
  KEEL_CHECK(r.text >= 0, "request {} has ended", handle);
  groups_.at(r.key)->drafts.finish(r.text);
  close(r.key);
  r = {};
  unused_.push_back(handle);
}

void DraftPool::add_reference(int64_t group, std::span<const int32_t> prompt,
                              std::span<const int32_t> answer) {
  KEEL_REQUIRE(group >= 0, "[sched.draft] expected a group id for a reference, got {}", group);
  if (!config_.share) return;
  auto& g = open(group);
  g.drafts.add_reference(prompt, answer);
  settle(g);
  close(group);
  evict();
}

std::string DraftPool::validate() const {
  int64_t tokens = 0;
  size_t idle = 0;
  for (const auto& [key, group] : groups_) {
    tokens += group->drafts.num_tokens();
    idle += group->num_live == 0;
    if (group->drafts.num_tokens() > config_.max_group_tokens) {
      return fmt::format("group {} remembers {} tokens", key, group->drafts.num_tokens());
    }
    if (auto wrong = group->drafts.automaton().validate(); !wrong.empty()) return wrong;
  }
  if (tokens != num_tokens_) return fmt::format("{} tokens, counted {}", tokens, num_tokens_);
  if (idle != idle_.size()) return fmt::format("{} idle groups, {} listed", idle, idle_.size());
  const int64_t bound = std::max(config_.max_tokens, 64 * num_groups());
  if (tokens > bound) return fmt::format("{} tokens, at most {} allowed", tokens, bound);
  return "";
}

}  // namespace keel::sched
