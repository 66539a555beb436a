// Drafting for all requests of an engine under one memory bound. Groups are kept after their last
// request ended, so that the next epoch's answers to the same prompt draft from this epoch's; the
// group that ended longest ago is forgotten first. Not thread-safe; deterministic.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "keel/sched/drafter.h"

namespace keel::sched {

struct DraftPoolConfig {
  int64_t max_tokens = 4 << 20;        // of all groups; about 150 bytes each
  int64_t max_group_tokens = 1 << 20;  // of one group, >= 64
  bool share = true;                   // false: every request drafts from its own text only
};

class DraftPool {
 public:
  // Throws Error(kInvalid) if a bound is < 64 tokens.
  explicit DraftPool(const DraftPoolConfig& config);

  // A request of `group` (< 0: none). Returns its handle, valid until finish().
  int32_t start(int64_t group, std::span<const int32_t> prompt);
  const Draft& draft(int32_t handle, const DraftLimits& limits);
  void append(int32_t handle, std::span<const int32_t> tokens);
  void finish(int32_t handle);

  // Another instance's or epoch's answer to the prompt of `group` (>= 0).
  void add_reference(int64_t group, std::span<const int32_t> prompt,
                     std::span<const int32_t> answer);

  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_groups() const { return static_cast<int64_t>(groups_.size()); }
  // Empty if counts agree and the bounds hold; otherwise what is wrong.
  std::string validate() const;

 private:
  struct Group {
    explicit Group(DraftModel& model, int64_t max_tokens) : drafts(model, max_tokens) {}
    DraftGroup drafts;
    int32_t num_live = 0;
    int64_t tokens = 0;  // as counted in num_tokens_
    std::list<int64_t>::iterator idle;
  };
  struct Request {
    int64_t key = -1;
    int32_t text = -1;
  };

  Group& open(int64_t key);
  void settle(Group& group);
  void close(int64_t key);
  void evict();

  DraftPoolConfig config_;
  DraftModel model_;
  std::unordered_map<int64_t, std::unique_ptr<Group>> groups_;
  std::list<int64_t> idle_;  // ended groups, the oldest first
  std::vector<Request> requests_;
  std::vector<int32_t> unused_;
  int64_t num_tokens_ = 0;
  int64_t next_private_key_ = -1;
};

}  // namespace keel::sched
