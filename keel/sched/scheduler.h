// Continuous batching over a paged KV cache: integers in, integers out; no clock, thread or tensor.
// The engine and the simulator hold the same Scheduler. Not thread-safe.
//
// Up to two plans may be outstanding, so that host work hides behind the device: the second plan
// decodes tokens that the first one samples (StepPlan::pending). Steps run in the order of plans.
//
// plan() chooses the rows of one step: first every running sequence that decodes, then prefill
// chunks, then new sequences, under a row budget. commit() takes the sampled tokens. Blocks of a
// prompt are allocated when its sequence is admitted; a decode that finds no block preempts the
// newest running sequence, which keeps its tokens and is computed again later. A sequence preempted
// max_preemptions times is admitted again only with its worst case reserved and is then left alone,
// so every request ends. Order: higher priority, then earlier arrival, then order of submission;
// but of the first waiting requests of a priority the one with the longest cached prefix goes first
// (before it is evicted), at most kMaxOvertaken times past the same one.
//
// Members of a group have the same prompt: it is computed once (the others wait and sample from the
// same last row), its full blocks are shared, the partly filled one is copied on the first write.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "keel/sched/block_pool.h"
#include "keel/sched/prefix_cache.h"
#include "keel/sched/step_limits.h"

namespace keel::sched {

struct SchedulerConfig {
  int32_t num_blocks = 0;       // KV blocks with the null block, >= 2
  int32_t max_seqs = 64;        // sequences that run at once
  int32_t step_tokens = 2048;   // rows of one step, >= max_seqs
  int32_t chunk_tokens = 0;     // prefill rows of one sequence in one step; 0 = up to step_tokens
  int32_t max_preemptions = 4;  // then the whole need is reserved
  bool prefix_cache = true;
};

struct ScheduledRequest {
  int64_t id = 0;
  int64_t group = -1;  // >= 0: members have equal prompts
  std::span<const int32_t> prompt;
  int32_t max_new_tokens = 0;  // >= 1
  int32_t priority = 0;        // higher first
  int64_t arrival_us = 0;      // not admitted before plan(now_us >= arrival_us)
};

// Rows [first_row, first_row + num_rows) are the tokens of one sequence at consecutive positions.
// `blocks` lists the sequence's blocks from position 0; to be read before the next plan() or
// commit().
struct PlanSegment {
  int32_t handle = 0;
  int32_t first_row = 0;
  int32_t num_rows = 0;
  int32_t first_position = 0;
  const int32_t* blocks = nullptr;
};

// Sequence `handle` samples its token at `position` from `row`. Several may sample from one row;
// rows come in no particular order.
struct PlanSample {
  int32_t row = 0;
  int32_t handle = 0;
  int32_t position = 0;
};

// The token of `row` is what `sample` of the plan before this one gives.
struct PendingToken {
  int32_t row = 0;
  int32_t sample = 0;
};

struct BlockCopy {
  int32_t from = 0;
  int32_t to = 0;
};

struct StepPlan {
  int64_t step = 0;
  std::vector<BlockCopy> copies;  // in this order, before anything is computed
  std::vector<int32_t> tokens;    // [rows]; -1 where pending
  std::vector<PendingToken> pending;
  std::vector<PlanSegment> segments;
  std::vector<PlanSample> samples;

  bool empty() const { return segments.empty(); }
};

struct SampleResult {
  int32_t token = 0;
  bool finish = false;  // the engine saw a stop; max_new_tokens is watched by the scheduler
};

struct SchedulerStats {
  int64_t num_steps = 0;
  int64_t num_finished = 0;
  int64_t num_preemptions = 0;
  int64_t computed_tokens = 0;  // rows planned
  int64_t reused_tokens = 0;    // rows saved by the prefix cache and by sharing in groups
  int64_t copied_blocks = 0;
  int64_t queue_us = 0;  // sum over requests of first admission - arrival
  int32_t peak_running = 0;
  int32_t peak_used_blocks = 0;
};

class Scheduler {
 public:
  static constexpr int32_t kMaxOvertaken = 64;

  // Throws Error(kInvalid) naming the field that is out of range.
  explicit Scheduler(const SchedulerConfig& config);

  // Returns the handle of the request: a small integer, valid until it ends, then reused.
  // Throws Error(kInvalid): empty prompt, max_new_tokens < 1, a prompt that differs from its
  // group's, or a worst case that exceeds the whole pool.
  int32_t submit(const ScheduledRequest& request);

  // The next step; empty when nothing can run now. At most two plans may be outstanding (an empty
  // one never is). The plan lives until the next but one plan().
  // limits: what a lockstep group agreed on (see agree_on_step); max_rows >= num_running().
  const StepPlan& plan(int64_t now_us, const StepLimits& limits = {});

  // For agree_on_step().
  RankLoad load() const;

  // results[i] belongs to samples[i] of the oldest outstanding plan. Results for requests that an
  // earlier commit() ended are ignored; their handles stay taken until then.
  void commit(std::span<const SampleResult> results);

  // Ends a request; not while a plan is outstanding.
  void abort(int32_t handle);

  // KV from now on belongs to weights `version`: running sequences are computed again from their
  // first token (not counted as preemptions) and the prefix cache is emptied.
  void set_weight_version(int64_t version);
  void reset_prefix_cache();

  // Whether plan() may have something to do, now or later; an outstanding plan does not count.
  bool has_work() const { return !running_.empty() || !waiting_.empty(); }
  int32_t num_running() const { return static_cast<int32_t>(running_.size()); }
  int32_t num_waiting() const { return static_cast<int32_t>(waiting_.size()); }
  const SchedulerStats& stats() const { return stats_; }
  const BlockPool& pool() const { return pool_; }
  // Prompt and generated tokens of a live request.
  std::span<const int32_t> tokens(int32_t handle) const { return seqs_[handle].tokens; }

  // Empty if every reference in the pool is explained by a sequence or the prefix cache and all
  // lists agree; otherwise what is wrong. For tests; O(everything).
  std::string validate() const;

 private:
  enum class State : uint8_t { kUnused, kWaiting, kRunning, kEnding };

  struct Sequence {
    int64_t id = 0;
    int64_t group = -1;
    int64_t arrival_us = 0;
    int64_t order = 0;  // of submission
    int32_t priority = 0;
    int32_t num_prompt = 0;
    int32_t max_new_tokens = 0;
    int32_t computed = 0;           // rows planned so far
    int32_t committed = 0;          // rows whose KV is in the pool
    int32_t num_cached_blocks = 0;  // leading blocks that are nodes of the prefix cache
    int32_t cache_node = PrefixCache::kRoot;
    int32_t num_preemptions = 0;
    int32_t pending = 0;      // samples of outstanding plans
    int32_t incarnation = 0;  // times it gave its blocks back
    int32_t ticket = -1;      // while it waits: of the prefix cache
    int32_t overtaken = 0;    // admissions of later requests while this one was first
    State state = State::kUnused;
    bool reserved = false;  // worst case allocated: never preempted
    bool admitted_once = false;
    std::vector<int32_t> tokens;
    std::vector<int32_t> blocks;

    int32_t length() const { return static_cast<int32_t>(tokens.size()); }
    int32_t planned_length() const { return length() + pending; }
    bool decodes() const {
      const int32_t made = planned_length() - num_prompt;
      return made > 0 && made < max_new_tokens && planned_length() - computed == 1;
    }
    bool prefills() const { return computed < length() && !decodes(); }
    // The last sampled token is never computed.
    int64_t worst_tokens() const { return int64_t{num_prompt} + max_new_tokens - 1; }
  };

  struct Key {
    int64_t minus_priority;
    int64_t arrival_us;
    int64_t order;
    int32_t handle;
    auto operator<=>(const Key&) const = default;
  };

  struct Group {
    std::vector<int32_t> members;  // live handles in order of submission
    int32_t leader = -1;           // running member that computes the prompt for the others
  };

  // The head of the queue did not fit in this state; trying again before it changes is no use.
  struct Blocked {
    int32_t handle = -1;
    int32_t available = 0;
    int32_t running = 0;
    bool operator==(const Blocked&) const = default;
  };

  struct Outstanding {
    StepPlan plan;
    std::vector<int32_t> segment_incarnations;  // [segments]
    std::vector<int32_t> sample_incarnations;   // [samples]
  };

  Key key(int32_t handle) const;
  Group* group_of(const Sequence& seq);
  int32_t available_blocks() const { return pool_.num_free() + pool_.num_idle(); }
  int32_t allocate();

  void plan_decodes();
  void plan_prefills();
  void plan_admissions();
  Key choose_waiting(std::set<Key>::const_iterator head);
  bool has_leader(const Sequence& seq);
  bool make_writable(int32_t handle, int32_t position);
  bool grow_or_preempt(size_t index);
  void add_sample(int32_t row, int32_t handle);
  void add_rows(int32_t handle, int32_t num_rows);
  void prefill(int32_t handle);
  void fork_followers(int32_t leader, int32_t row);
  StepPlan& plan_now() { return plans_[current_].plan; }
  int32_t pending_sample(int32_t handle) const;
  bool forkable(const Sequence& seq) const;
  bool admit(int32_t handle, int32_t promised);
  void take_prefix(Sequence& seq);
  const Sequence* prompt_source(const Sequence& seq);
  void start(int32_t handle);
  void enqueue(int32_t handle);
  void dequeue(int32_t handle, bool served);
  void insert_planned_blocks(Sequence& seq);
  void insert_full_blocks(Sequence& seq);
  void release_blocks(Sequence& seq);
  void give_back(Sequence& seq);
  void preempt(int32_t handle, bool counted);
  void end(int32_t handle);
  void retire(int32_t handle);
  void leave_running(int32_t handle);

  SchedulerConfig config_;
  BlockPool pool_;
  PrefixCache cache_;
  std::vector<Sequence> seqs_;
  std::vector<int32_t> unused_;
  std::vector<int32_t> running_;  // sorted by key
  std::set<Key> waiting_;
  std::unordered_map<int64_t, Group> groups_;
  std::array<Outstanding, 2> plans_;
  int32_t num_outstanding_ = 0;
  int32_t current_ = 0;  // plan in the making or made last
  std::vector<int32_t> prefills_;
  Blocked blocked_;
  int32_t rows_left_ = 0;
  int64_t weight_version_ = 0;
  int64_t next_order_ = 0;
  int64_t now_us_ = 0;
  SchedulerStats stats_;
};

}  // namespace keel::sched
