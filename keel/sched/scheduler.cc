#include "keel/sched/scheduler.h"

#include <algorithm>

#include "keel/base/error.h"

namespace keel::sched {

Scheduler::Scheduler(const SchedulerConfig& config)
    : config_(config), pool_(config.num_blocks), cache_(pool_) {
  KEEL_REQUIRE(config.max_seqs >= 1, "[sched.max_seqs] expected >= 1, got {}", config.max_seqs);
  KEEL_REQUIRE(config.step_tokens >= config.max_seqs,
               "[sched.step_tokens] expected at least max_seqs = {}, got {}", config.max_seqs,
               config.step_tokens);
  KEEL_REQUIRE(config.chunk_tokens >= 0, "[sched.chunk_tokens] expected >= 0, got {}",
               config.chunk_tokens);
  KEEL_REQUIRE(config.max_preemptions >= 0, "[sched.max_preemptions] expected >= 0, got {}",
               config.max_preemptions);
  running_.reserve(config.max_seqs);
}

int32_t Scheduler::submit(const ScheduledRequest& request) {
  KEEL_REQUIRE(!request.prompt.empty(), "[sched] expected a prompt, got none in request {}",
               request.id);
  KEEL_REQUIRE(request.max_new_tokens >= 1,
               "[sched] expected max_new_tokens >= 1, got {} in request {}", request.max_new_tokens,
               request.id);
  const int64_t worst = static_cast<int64_t>(request.prompt.size()) + request.max_new_tokens - 1;
  KEEL_REQUIRE(
      (worst + kBlockTokens - 1) / kBlockTokens <= pool_.capacity(),
      "[sched] expected requests of at most {} tokens, got {} + {} in request {}; try more "
      "KV blocks or fewer new tokens",
      int64_t{pool_.capacity()} * kBlockTokens + 1, request.prompt.size(), request.max_new_tokens,
      request.id);
  if (request.group >= 0) {
    const auto found = groups_.find(request.group);
    if (found != groups_.end()) {
      const auto& mate = seqs_[found->second.members.front()];
      KEEL_REQUIRE(std::equal(request.prompt.begin(), request.prompt.end(), mate.tokens.begin(),
                              mate.tokens.begin() + mate.num_prompt),
                   "[sched] expected equal prompts in group {}, got another one in request {}",
                   request.group, request.id);
    }
  }
  int32_t handle = static_cast<int32_t>(seqs_.size());
  if (unused_.empty()) {
    seqs_.emplace_back();
  } else {
    handle = unused_.back();
    unused_.pop_back();
  }
  auto& seq = seqs_[handle];
  const int32_t incarnation = seqs_[handle].incarnation + 1;
  seq = Sequence{};
  seq.incarnation = incarnation;
  seq.id = request.id;
  seq.group = request.group;
  seq.arrival_us = request.arrival_us;
  seq.order = next_order_++;
  seq.priority = request.priority;
  seq.num_prompt = static_cast<int32_t>(request.prompt.size());
  seq.max_new_tokens = request.max_new_tokens;
  seq.tokens.assign(request.prompt.begin(), request.prompt.end());
  if (seq.group >= 0) groups_[seq.group].members.push_back(handle);
  enqueue(handle);
  return handle;
}

void Scheduler::commit(std::span<const SampleResult> results) {
  KEEL_CHECK(num_outstanding_ > 0, "commit without a plan");
  const auto& oldest = plans_[num_outstanding_ == 2 ? 1 - current_ : current_];
  const auto& plan = oldest.plan;
  KEEL_CHECK(results.size() == plan.samples.size(), "{} results for {} samples", results.size(),
             plan.samples.size());
  --num_outstanding_;
  for (size_t i = 0; i < plan.segments.size(); ++i) {
    const auto& segment = plan.segments[i];
    auto& seq = seqs_[segment.handle];
    if (seq.incarnation != oldest.segment_incarnations[i]) continue;
    seq.committed = segment.first_position + segment.num_rows;
    insert_full_blocks(seq);
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const auto& sample = plan.samples[i];
    auto& seq = seqs_[sample.handle];
    --seq.pending;
    if (seq.state == State::kEnding) {
      if (seq.pending == 0) retire(sample.handle);
      continue;
    }
    // Also of followers that were forked in this plan.
    if (seq.incarnation == oldest.sample_incarnations[i]) seq.committed = sample.position;
    seq.tokens.push_back(results[i].token);
    if (results[i].finish || seq.length() - seq.num_prompt == seq.max_new_tokens) {
      ++stats_.num_finished;
      end(sample.handle);
    }
  }
}

void Scheduler::retire(int32_t handle) {
  seqs_[handle].state = State::kUnused;
  unused_.push_back(handle);
}

void Scheduler::abort(int32_t handle) {
  KEEL_CHECK(num_outstanding_ == 0, "abort while a plan is outstanding");
  end(handle);
}

void Scheduler::set_weight_version(int64_t version) {
  KEEL_CHECK(num_outstanding_ == 0, "weights changed while a plan is outstanding");
  weight_version_ = version;
  while (!running_.empty()) preempt(running_.back(), /*counted=*/false);
  cache_.clear();
  if (!config_.prefix_cache) return;
  for (const auto& at : std::vector<Key>(waiting_.begin(), waiting_.end())) {
    dequeue(at.handle, /*served=*/false);  // other weights, other prefixes
    enqueue(at.handle);
  }
}

void Scheduler::reset_prefix_cache() {
  KEEL_CHECK(num_outstanding_ == 0, "reset while a plan is outstanding");
  cache_.clear();
  for (const int32_t handle : running_) {
    seqs_[handle].cache_node = PrefixCache::kRoot;
    seqs_[handle].num_cached_blocks = 0;
  }
}

Scheduler::Key Scheduler::key(int32_t handle) const {
  const auto& seq = seqs_[handle];
  return {-int64_t{seq.priority}, seq.arrival_us, seq.order, handle};
}

Scheduler::Group* Scheduler::group_of(const Sequence& seq) {
  return seq.group < 0 ? nullptr : &groups_.at(seq.group);
}

int32_t Scheduler::allocate() {
  if (pool_.num_free() == 0 && !cache_.evict_one()) return kNullBlock;
  return pool_.allocate();
}

void Scheduler::enqueue(int32_t handle) {
  auto& seq = seqs_[handle];
  seq.state = State::kWaiting;
  waiting_.insert(key(handle));
  if (!config_.prefix_cache) return;
  seq.ticket =
      cache_.want(weight_version_, std::span(seq.tokens).first(seq.length() - 1), seq.order);
}

void Scheduler::dequeue(int32_t handle, bool served) {
  auto& seq = seqs_[handle];
  waiting_.erase(key(handle));
  if (seq.ticket >= 0) cache_.unwant(seq.ticket, served);
  seq.ticket = -1;
}

// Blocks that the plan fills enter the prefix cache at once: steps run in order and a layer's keys
// and values are all written before any are read, so later rows, even of this plan, may share them.
void Scheduler::insert_planned_blocks(Sequence& seq) {
  if (!config_.prefix_cache) return;
  const int32_t full = std::min(seq.computed, seq.length()) / kBlockTokens;
  for (; seq.num_cached_blocks < full; ++seq.num_cached_blocks) {
    const int32_t b = seq.num_cached_blocks;
    const auto tokens = std::span(seq.tokens).subspan(b * kBlockTokens, kBlockTokens);
    // This plan writes to our own block; commit() gives it up for the equal one.
    if (cache_.child(weight_version_, seq.cache_node, tokens) != PrefixCache::kRoot) return;
    seq.cache_node = cache_.insert(weight_version_, seq.cache_node, tokens, seq.blocks[b]).node;
  }
}

// Full blocks that could not enter when they were planned. Where an equal block is there already,
// ours is given up for it: the kernels are batch-invariant, so equal prefixes have equal KV bits.
void Scheduler::insert_full_blocks(Sequence& seq) {
  if (!config_.prefix_cache) return;
  const int32_t full = seq.committed / kBlockTokens;
  for (; seq.num_cached_blocks < full; ++seq.num_cached_blocks) {
    const int32_t b = seq.num_cached_blocks;
    const auto tokens = std::span(seq.tokens).subspan(b * kBlockTokens, kBlockTokens);
    const auto inserted = cache_.insert(weight_version_, seq.cache_node, tokens, seq.blocks[b]);
    seq.cache_node = inserted.node;
    if (inserted.block == seq.blocks[b]) continue;
    pool_.retain(inserted.block);
    pool_.release(seq.blocks[b]);
    seq.blocks[b] = inserted.block;
  }
}

void Scheduler::release_blocks(Sequence& seq) {
  cache_.touch(seq.cache_node);
  give_back(seq);
}

void Scheduler::give_back(Sequence& seq) {
  for (size_t b = seq.blocks.size(); b-- > 0;) pool_.release(seq.blocks[b]);
  seq.blocks.clear();
  ++seq.incarnation;
  seq.cache_node = PrefixCache::kRoot;
  seq.num_cached_blocks = 0;
  seq.computed = 0;
  seq.committed = 0;
  seq.reserved = false;
}

void Scheduler::leave_running(int32_t handle) {
  running_.erase(std::find(running_.begin(), running_.end(), handle));
  if (Group* group = group_of(seqs_[handle]); group && group->leader == handle) group->leader = -1;
}

void Scheduler::preempt(int32_t handle, bool counted) {
  auto& seq = seqs_[handle];
  leave_running(handle);
  release_blocks(seq);
  if (counted) {
    ++seq.num_preemptions;
    ++stats_.num_preemptions;
  }
  enqueue(handle);
}

void Scheduler::end(int32_t handle) {
  auto& seq = seqs_[handle];
  KEEL_CHECK(seq.state == State::kRunning || seq.state == State::kWaiting, "request {} has ended",
             handle);
  if (seq.state == State::kRunning) {
    leave_running(handle);
    release_blocks(seq);
  } else {
    dequeue(handle, /*served=*/false);
  }
  if (Group* group = group_of(seq)) {
    auto& members = group->members;
    members.erase(std::find(members.begin(), members.end(), handle));
    if (members.empty()) groups_.erase(seq.group);
  }
  if (blocked_.handle == handle) blocked_ = {};
  seq.state = State::kEnding;  // outstanding plans may name it
  if (seq.pending == 0) retire(handle);
}

std::string Scheduler::validate() const {
  std::vector<int32_t> refs(pool_.capacity() + 1, 0);
  size_t num_running = 0;
  for (size_t h = 0; h < seqs_.size(); ++h) {
    const auto& seq = seqs_[h];
    for (const int32_t b : seq.blocks) ++refs[b];
    if (seq.state == State::kRunning) {
      ++num_running;
      if (blocks_for(seq.committed) > static_cast<int32_t>(seq.blocks.size())) {
        return fmt::format("sequence {} has {} tokens in {} blocks", h, seq.committed,
                           seq.blocks.size());
      }
    } else if (!seq.blocks.empty()) {
      return fmt::format("sequence {} holds blocks but does not run", h);
    }
    if (seq.state == State::kWaiting && !waiting_.contains(key(static_cast<int32_t>(h)))) {
      return fmt::format("sequence {} is not in the queue", h);
    }
  }
  for (int32_t b = kNullBlock + 1; b <= pool_.capacity(); ++b) {
    if (refs[b] + pool_.cached(b) != pool_.ref_count(b)) {
      return fmt::format("block {} has {} references, {} explained", b, pool_.ref_count(b),
                         refs[b] + pool_.cached(b));
    }
  }
  if (num_running != running_.size()) return "running list and states differ";
  const auto by_key = [&](int32_t x, int32_t y) { return key(x) < key(y); };
  if (!std::is_sorted(running_.begin(), running_.end(), by_key)) return "running is not sorted";
  if (auto wrong = pool_.validate(); !wrong.empty()) return wrong;
  return cache_.validate();
}

}  // namespace keel::sched
