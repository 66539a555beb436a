// Scheduler::plan(): decodes, prefill chunks, admissions.
#include <algorithm>

#include "keel/base/error.h"
#include "keel/sched/scheduler.h"

namespace keel::sched {

const StepPlan& Scheduler::plan(int64_t now_us, const StepLimits& limits) {
  KEEL_CHECK(num_outstanding_ < 2, "plan while two plans are outstanding");
  if (num_outstanding_ == 1) current_ = 1 - current_;
  auto& now = plans_[current_];
  now.segment_incarnations.clear();
  now.sample_incarnations.clear();
  auto& plan = now.plan;
  plan.copies.clear();
  plan.tokens.clear();
  plan.pending.clear();
  plan.segments.clear();
  plan.samples.clear();
  rows_left_ = config_.step_tokens;
  if (limits.max_rows > 0) {
    KEEL_CHECK(limits.max_rows >= num_running(), "{} rows for {} running sequences",
               limits.max_rows, num_running());
    rows_left_ = std::min(rows_left_, limits.max_rows);
  }
  now_us_ = now_us;
  const int64_t preemptions = stats_.num_preemptions;
  plan_decodes();
  plan_prefills();
  if (limits.admit && stats_.num_preemptions == preemptions) plan_admissions();
  if (plan.empty()) {
    if (num_outstanding_ == 1) current_ = 1 - current_;  // still the one to commit
    return plan;
  }
  plan.step = stats_.num_steps++;
  ++num_outstanding_;
  for (const auto& s : plan.samples) ++seqs_[s.handle].pending;
  stats_.computed_tokens += static_cast<int64_t>(plan.tokens.size());
  stats_.copied_blocks += static_cast<int64_t>(plan.copies.size());
  stats_.peak_running = std::max(stats_.peak_running, num_running());
  stats_.peak_used_blocks = std::max(stats_.peak_used_blocks, pool_.num_used());
  return plan;
}

RankLoad Scheduler::load() const {
  RankLoad load{num_running(), num_waiting(), config_.max_seqs, 0};
  for (const int32_t handle : running_) {
    const auto& seq = seqs_[handle];
    if (seq.prefills()) load.pending_rows += seq.length() - seq.computed;
  }
  for (const auto& at : waiting_) {
    if (load.pending_rows >= config_.step_tokens) break;  // more would not change a step
    load.pending_rows += seqs_[at.handle].length();
  }
  return load;
}

// running_ is sorted, the newest last. Victims come from the end, so none has rows in this plan.
void Scheduler::plan_decodes() {
  for (size_t i = 0; i < running_.size(); ++i) {
    const int32_t handle = running_[i];
    if (!seqs_[handle].decodes()) continue;
    if (!grow_or_preempt(i)) continue;
    add_rows(handle, 1);
  }
}

// Makes the next slot of running_[index] writable, preempting newer sequences for blocks. False if
// the sequence itself had to go (then it was the last one that could).
bool Scheduler::grow_or_preempt(size_t index) {
  const int32_t handle = running_[index];
  while (!make_writable(handle, seqs_[handle].computed)) {
    size_t victim = running_.size();
    while (victim > index && seqs_[running_[victim - 1]].reserved) --victim;
    KEEL_CHECK(victim > index, "reserved sequence {} ran out of blocks", handle);
    const bool self = victim - 1 == index;
    preempt(running_[victim - 1], /*counted=*/true);
    if (self) return false;
  }
  return true;
}

// The block of `position` exists and nobody else holds it; copies a shared one. False: no block.
bool Scheduler::make_writable(int32_t handle, int32_t position) {
  auto& seq = seqs_[handle];
  const size_t b = position / kBlockTokens;
  if (b < seq.blocks.size() && pool_.ref_count(seq.blocks[b]) == 1) return true;
  const int32_t fresh = allocate();
  if (fresh == kNullBlock) return false;
  if (b == seq.blocks.size()) {
    seq.blocks.push_back(fresh);
    return true;
  }
  plan_now().copies.push_back({seq.blocks[b], fresh});
  pool_.release(seq.blocks[b]);
  seq.blocks[b] = fresh;
  return true;
}

// Which sample of the plan before gives the next token of `handle`.
int32_t Scheduler::pending_sample(int32_t handle) const {
  const auto& samples = plans_[1 - current_].plan.samples;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (samples[i].handle == handle) return static_cast<int32_t>(i);
  }
  KEEL_CHECK(false, "sequence {} waits for a token that nobody samples", handle);
}

void Scheduler::add_sample(int32_t row, int32_t handle) {
  plan_now().samples.push_back({row, handle, seqs_[handle].planned_length()});
  plans_[current_].sample_incarnations.push_back(seqs_[handle].incarnation);
}

void Scheduler::add_rows(int32_t handle, int32_t num_rows) {
  auto& seq = seqs_[handle];
  auto& plan = plan_now();
  const auto row = static_cast<int32_t>(plan.tokens.size());
  if (seq.computed == seq.length()) {  // sampled, but not yet committed
    plan.tokens.push_back(-1);
    plan.pending.push_back({row, pending_sample(handle)});
  } else {
    const auto* tokens = seq.tokens.data() + seq.computed;
    plan.tokens.insert(plan.tokens.end(), tokens, tokens + num_rows);
  }
  plan.segments.push_back({handle, row, num_rows, seq.computed, seq.blocks.data()});
  plans_[current_].segment_incarnations.push_back(seq.incarnation);
  seq.computed += num_rows;
  rows_left_ -= num_rows;
  insert_planned_blocks(seq);
  if (seq.computed == seq.planned_length()) add_sample(row + num_rows - 1, handle);
}

void Scheduler::plan_prefills() {
  prefills_.clear();  // forks insert into running_ while we work
  for (const int32_t handle : running_) {
    const auto& seq = seqs_[handle];
    if (seq.prefills()) prefills_.push_back(handle);
  }
  for (size_t i = 0; i < prefills_.size() && rows_left_ > 0; ++i) prefill(prefills_[i]);
}

void Scheduler::prefill(int32_t handle) {
  auto& seq = seqs_[handle];
  int32_t rows = std::min(seq.length() - seq.computed, rows_left_);
  if (config_.chunk_tokens > 0) rows = std::min(rows, config_.chunk_tokens);
  add_rows(handle, rows);
  Group* group = group_of(seq);
  if (group == nullptr || group->leader != handle || seq.computed < seq.num_prompt) return;
  group->leader = -1;
  // A leader that recomputes generated tokens passes the prompt's end inside a chunk; the others
  // sample from that row all the same.
  const auto segment = plan_now().segments.back();
  fork_followers(handle, segment.first_row + seq.num_prompt - 1 - segment.first_position);
}

bool Scheduler::forkable(const Sequence& seq) const {
  return seq.state == State::kWaiting && seq.planned_length() == seq.num_prompt &&
         seq.arrival_us <= now_us_ && seq.num_preemptions < config_.max_preemptions;
}

// Waiting members of the leader's group start now: they share its blocks and sample from `row`.
void Scheduler::fork_followers(int32_t leader, int32_t row) {
  const auto& from = seqs_[leader];
  if (from.reserved) return;  // sharing its last block would make it copy, which was not reserved
  const int32_t prompt_blocks = blocks_for(from.num_prompt);
  int32_t free = available_blocks();  // each follower soon needs a block of its own
  for (const int32_t handle : groups_.at(from.group).members) {
    auto& seq = seqs_[handle];
    if (!forkable(seq)) continue;
    if (num_running() == config_.max_seqs || --free < 0) break;
    seq.blocks.reserve(blocks_for(seq.worst_tokens()) + 1);
    seq.blocks.assign(from.blocks.begin(), from.blocks.begin() + prompt_blocks);
    for (const int32_t b : seq.blocks) pool_.retain(b);
    seq.computed = seq.num_prompt;
    if (from.num_cached_blocks * kBlockTokens <= seq.num_prompt) {
      seq.num_cached_blocks = from.num_cached_blocks;
      seq.cache_node = from.cache_node;
    }
    stats_.reused_tokens += seq.num_prompt;
    start(handle);
    add_sample(row, handle);
  }
}

bool Scheduler::has_leader(const Sequence& seq) {
  const Group* group = group_of(seq);
  return group != nullptr && group->leader >= 0;
}

// The head of the queue, or a later request of its priority with a longer cached prefix.
Scheduler::Key Scheduler::choose_waiting(std::set<Key>::const_iterator head) {
  constexpr int kWindow = 64;
  auto& first = seqs_[head->handle];
  if (!config_.prefix_cache || first.overtaken >= kMaxOvertaken) return *head;
  Key best = *head;
  int32_t depth = cache_.wanted_depth(first.ticket);
  auto it = std::next(head);
  for (int seen = 0; it != waiting_.end() && seen < kWindow; ++it, ++seen) {
    const auto& seq = seqs_[it->handle];
    if (it->minus_priority != head->minus_priority) break;
    if (seq.arrival_us > now_us_ || seq.pending > 0 || has_leader(seq)) continue;
    const int32_t cached = cache_.wanted_depth(seq.ticket);
    if (cached <= depth) continue;
    depth = cached;
    best = *it;
  }
  return best;
}

void Scheduler::plan_admissions() {
  int32_t slots = config_.max_seqs - num_running();
  int32_t promised = 0;  // blocks for followers that start when their leader is done
  for (auto it = waiting_.cbegin(); it != waiting_.cend() && slots > 0 && rows_left_ > 0;) {
    const Key head = *it;
    // What was preempted with its sample outstanding waits for the commit.
    if (seqs_[head.handle].arrival_us > now_us_ || seqs_[head.handle].pending > 0) {
      ++it;
      continue;
    }
    if (has_leader(seqs_[head.handle])) {
      --slots;
      ++promised;
      ++it;
      continue;
    }
    const Key at = choose_waiting(it);
    auto& seq = seqs_[at.handle];
    if (!admit(at.handle, promised)) break;  // no overtaking by what is smaller
    if (at != head) ++seqs_[head.handle].overtaken;
    start(at.handle);
    Group* group = group_of(seq);
    if (group != nullptr && seq.computed < seq.num_prompt) group->leader = at.handle;
    const int32_t before = num_running();
    prefill(at.handle);
    slots -= 1 + num_running() - before;
    it = waiting_.lower_bound(head);  // forks left the queue as well
  }
}

// Takes shared blocks and allocates the rest of what the sequence needs now. False: too few.
bool Scheduler::admit(int32_t handle, int32_t promised) {
  auto& seq = seqs_[handle];
  const Blocked state{handle, available_blocks(), num_running()};
  if (state == blocked_) return false;
  seq.blocks.reserve(blocks_for(seq.worst_tokens()) + 1);
  take_prefix(seq);
  seq.reserved = seq.num_preemptions >= config_.max_preemptions;
  const int64_t tokens =
      seq.reserved ? seq.worst_tokens() : std::min<int64_t>(seq.length() + 1, seq.worst_tokens());
  const auto held = static_cast<int32_t>(seq.blocks.size());
  const bool partial = seq.computed % kBlockTokens != 0;  // shared and about to be written
  const int32_t fresh = blocks_for(tokens) - held + partial;
  // Running sequences will soon want a block each.
  if (fresh + promised + num_running() > available_blocks() &&
      !(running_.empty() && fresh <= available_blocks())) {
    give_back(seq);
    blocked_ = state;
    return false;
  }
  for (int32_t b = held; b < blocks_for(tokens); ++b) seq.blocks.push_back(allocate());
  if (partial) KEEL_CHECK(make_writable(handle, seq.computed), "no block for a counted copy");
  stats_.reused_tokens += seq.computed;
  cache_.use(seq.cache_node);
  return true;
}

// Shares what is there already: cached blocks, then the prompt of a running member of the group.
void Scheduler::take_prefix(Sequence& seq) {
  const int32_t useful = seq.length() - 1;  // the last row must be computed to sample
  if (config_.prefix_cache) {
    seq.cache_node = cache_.lookup(weight_version_, seq.tokens, useful / kBlockTokens, seq.blocks);
  }
  seq.num_cached_blocks = static_cast<int32_t>(seq.blocks.size());
  seq.computed = seq.num_cached_blocks * kBlockTokens;
  const int32_t shareable = std::min(seq.num_prompt, useful);
  if (shareable <= seq.computed) return;
  const Sequence* from = prompt_source(seq);
  if (from == nullptr) return;
  for (int32_t b = seq.num_cached_blocks; b < blocks_for(shareable); ++b) {
    pool_.retain(from->blocks[b]);
    seq.blocks.push_back(from->blocks[b]);
  }
  seq.computed = shareable;
}

const Scheduler::Sequence* Scheduler::prompt_source(const Sequence& seq) {
  const Group* group = group_of(seq);
  if (group == nullptr) return nullptr;
  for (const int32_t handle : group->members) {
    const auto& mate = seqs_[handle];
    if (mate.state == State::kRunning && mate.committed >= mate.num_prompt) return &mate;
  }
  return nullptr;
}

void Scheduler::start(int32_t handle) {
  auto& seq = seqs_[handle];
  dequeue(handle, /*served=*/true);
  seq.state = State::kRunning;
  const auto later = [&](int32_t x, int32_t y) { return key(x) < key(y); };
  running_.insert(std::upper_bound(running_.begin(), running_.end(), handle, later), handle);
  if (seq.admitted_once) return;
  seq.admitted_once = true;
  stats_.queue_us += now_us_ - seq.arrival_us;
}

}  // namespace keel::sched
