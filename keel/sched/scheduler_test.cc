#include "keel/sched/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "keel/base/error.h"
#include "keel/sched/paged_oracle.h"

namespace keel::sched {
namespace {

using Tokens = std::vector<int32_t>;

// Runs plans on a PagedOracle and checks every plan and every sample against the tokens themselves.
class Driver {
 public:
  explicit Driver(const SchedulerConfig& config)
      : scheduler(config), config_(config), oracle_(config.num_blocks) {}

  int32_t submit(const Tokens& prompt, int32_t max_new, int64_t group = -1, int32_t priority = 0,
                 int64_t arrival_us = 0) {
    const int64_t id = next_id_++;
    const int32_t handle = scheduler.submit({id, group, prompt, max_new, priority, arrival_us});
    live_[handle] = {prompt, static_cast<int32_t>(prompt.size()) + max_new, id};
    return handle;
  }

  // One step. stop_odds: one in so many tokens ends its sequence early (0 = never). With `ahead`
  // the results of a step are committed only after the next one was planned and run.
  bool step(uint32_t stop_odds = 0) {
    const auto& plan = scheduler.plan(now_us++);
    if (plan.empty()) {
      if (!held_) return false;
      release_held();
      return true;
    }
    check(plan);
    for (const auto& c : plan.copies) oracle_.copy(c);
    auto tokens = plan.tokens;
    for (const auto& p : plan.pending) tokens[p.row] = last_results_.at(p.sample).token;
    std::vector<uint64_t> rows;
    for (const auto& s : plan.segments) {
      for (int32_t i = 0; i < s.num_rows; ++i) {
        rows.push_back(
            oracle_.write(start(), s.blocks, s.first_position + i, tokens[s.first_row + i]));
      }
    }
    std::vector<SampleResult> results;
    for (const auto& s : plan.samples) results.push_back(sample(s, rows[s.row], stop_odds));
    if (held_) release_held();
    held_ = true;
    last_results_ = results;
    if (!ahead) release_held();
    return true;
  }

  // Commits what is outstanding.
  void settle() {
    if (held_) release_held();
  }

  void drain(uint32_t stop_odds = 0) {
    for (int steps = 0; scheduler.has_work(); ++steps) {
      ASSERT_LT(steps, 100000) << "starvation";
      step(stop_odds);
    }
    settle();
    EXPECT_TRUE(live_.empty());
  }

  void abort(int32_t handle) {
    settle();
    if (!live_.contains(handle)) return;
    scheduler.abort(handle);
    live_.erase(handle);
  }

  void set_version(int64_t version) {
    settle();
    version_ = version;
    scheduler.set_weight_version(version);
  }

  Scheduler scheduler;
  int64_t now_us = 0;
  bool ahead = false;
  std::vector<int64_t> finished;  // ids
  std::map<int64_t, Tokens> outputs;
  struct Live {
    Tokens tokens;
    int32_t end = 0;
    int64_t id = 0;
  };
  const std::map<int32_t, Live>& live() const { return live_; }

 private:
  uint64_t start() const { return mix_key(99, version_); }

  void release_held() {
    scheduler.commit(last_results_);
    held_ = false;
  }

  SampleResult sample(const PlanSample& s, uint64_t hash, uint32_t stop_odds) {
    const auto found = live_.find(s.handle);
    if (found == live_.end()) return {};  // ended in the step before, not committed yet
    auto& live = found->second;
    uint64_t expected = start();
    for (const int32_t t : live.tokens) expected = test::PagedOracle::chain(expected, t);
    EXPECT_EQ(hash, expected) << "KV of request " << live.id;
    EXPECT_EQ(s.position, static_cast<int32_t>(live.tokens.size()));
    const uint64_t draw = mix_key(hash, live.id);
    const auto token = static_cast<int32_t>(draw % 4);
    live.tokens.push_back(token);
    const bool stop = stop_odds > 0 && (draw >> 8) % stop_odds == 0;
    if (stop || static_cast<int32_t>(live.tokens.size()) == live.end) {
      finished.push_back(live.id);
      outputs[live.id] = live.tokens;
      live_.erase(s.handle);
    }
    return {token, stop};
  }

  void check(const StepPlan& plan) {
    EXPECT_LE(static_cast<int32_t>(plan.tokens.size()), config_.step_tokens);
    EXPECT_LE(scheduler.num_running(), config_.max_seqs);
    std::set<std::pair<int32_t, int32_t>> written;
    int32_t row = 0;
    for (const auto& s : plan.segments) {
      EXPECT_EQ(s.first_row, row);
      row += s.num_rows;
      if (config_.chunk_tokens > 0) {
        EXPECT_LE(s.num_rows, config_.chunk_tokens);
      }
      for (int32_t p = s.first_position; p < s.first_position + s.num_rows; ++p) {
        const int32_t block = s.blocks[p / kBlockTokens];
        EXPECT_TRUE(written.emplace(block, p % kBlockTokens).second);
      }
    }
    EXPECT_EQ(row, static_cast<int32_t>(plan.tokens.size()));
    std::set<int32_t> sampled;
    for (const auto& s : plan.samples) EXPECT_TRUE(sampled.insert(s.handle).second);
  }

  SchedulerConfig config_;
  test::PagedOracle oracle_;
  std::map<int32_t, Live> live_;
  int64_t next_id_ = 0;
  int64_t version_ = 0;
  bool held_ = false;
  std::vector<SampleResult> last_results_;
};

Tokens prompt_of(int32_t length, int32_t kind) {
  Tokens t(length);
  for (int32_t i = 0; i < length; ++i) t[i] = (kind * 31 + i * 7) % 50;
  return t;
}

TEST(Scheduler, OneRequestIsPrefilledThenDecoded) {
  Driver d({.num_blocks = 10, .max_seqs = 4, .step_tokens = 8});
  d.submit(prompt_of(20, 0), 3);
  d.step();
  EXPECT_EQ(d.scheduler.stats().computed_tokens, 8);
  d.drain();
  EXPECT_EQ(d.scheduler.stats().computed_tokens, 22);  // the last token is never computed
  EXPECT_EQ(d.scheduler.stats().num_steps, 5);
  EXPECT_EQ(d.scheduler.validate(), "");
}

TEST(Scheduler, GroupComputesItsPromptOnceAndCopiesThePartialBlock) {
  for (const bool cache : {true, false}) {
    Driver d({.num_blocks = 100, .max_seqs = 8, .step_tokens = 16, .prefix_cache = cache});
    for (int i = 0; i < 8; ++i) d.submit(prompt_of(37, 1), 5, 7);
    d.drain();
    const auto& stats = d.scheduler.stats();
    EXPECT_EQ(stats.computed_tokens, 37 + 8 * 4);
    EXPECT_EQ(stats.reused_tokens, 7 * 37);
    EXPECT_EQ(stats.copied_blocks, 7);
    EXPECT_EQ(stats.peak_used_blocks, 2 + 8);
  }
}

TEST(Scheduler, TwoPlansOutstandingComputeTheSame) {
  for (const uint32_t stop_odds : {0, 6}) {
    std::map<int64_t, Tokens> outputs;
    for (const bool ahead : {false, true}) {
      Driver d({.num_blocks = 20, .max_seqs = 8, .step_tokens = 16, .prefix_cache = false});
      d.ahead = ahead;
      for (int i = 0; i < 16; ++i) d.submit(prompt_of(37, i / 4), 5 + i, i / 4);
      d.drain(stop_odds);
      EXPECT_EQ(d.scheduler.validate(), "");
      if (ahead) {
        EXPECT_EQ(d.outputs, outputs);
      }
      outputs = d.outputs;
      EXPECT_EQ(outputs.size(), 16u);
    }
  }
}

TEST(Scheduler, LookingAheadWastesNoRowIfNobodyStopsEarly) {
  for (const bool ahead : {false, true}) {
    Driver d({.num_blocks = 100, .max_seqs = 8, .step_tokens = 16});
    d.ahead = ahead;
    for (int i = 0; i < 8; ++i) d.submit(prompt_of(37, i / 4), 5 + i, i / 4);
    d.drain();
    EXPECT_EQ(d.scheduler.stats().computed_tokens, 2 * 37 + 4 * 8 + 28);
    EXPECT_EQ(d.scheduler.validate(), "");
  }
}

TEST(Scheduler, PlansWithinAgreedLimits) {
  Driver d({.num_blocks = 100, .max_seqs = 4, .step_tokens = 64});
  d.submit(prompt_of(40, 0), 3);
  EXPECT_EQ(d.scheduler.load().pending_rows, 40);
  EXPECT_EQ(d.scheduler.plan(0, {.max_rows = 8}).tokens.size(), 8u);
  d.scheduler.commit({});
  EXPECT_EQ(d.scheduler.load().running, 1);
  EXPECT_EQ(d.scheduler.load().pending_rows, 32);
  d.submit(prompt_of(40, 1), 3);
  EXPECT_EQ(d.scheduler.plan(1, {.admit = false}).segments.size(), 1u);
}

TEST(Scheduler, LateMemberSharesWithARunningMate) {
  Driver d({.num_blocks = 100, .max_seqs = 2, .step_tokens = 64, .prefix_cache = false});
  for (int i = 0; i < 3; ++i) d.submit(prompt_of(37, 1), 3 + 4 * i, 7);
  d.drain();
  // The third starts when the first is done: one row of the prompt again, two blocks shared.
  EXPECT_EQ(d.scheduler.stats().computed_tokens, 37 + 2 + 6 + 1 + 10);
}

TEST(Scheduler, PrefixCacheHitOfAWholePromptStillComputesARow) {
  Driver d({.num_blocks = 100, .max_seqs = 2, .step_tokens = 64});
  d.submit(prompt_of(32, 1), 1);
  d.drain();
  d.submit(prompt_of(32, 1), 1);
  d.drain();
  EXPECT_EQ(d.scheduler.stats().computed_tokens, 32 + 16);
  d.scheduler.reset_prefix_cache();
  d.submit(prompt_of(32, 1), 1);
  d.drain();
  EXPECT_EQ(d.scheduler.stats().computed_tokens, 32 + 16 + 32);
  EXPECT_EQ(d.scheduler.pool().num_used(), 0);
}

TEST(Scheduler, NewWeightsNeverReadOldKv) {
  Driver d({.num_blocks = 100, .max_seqs = 4, .step_tokens = 64});
  for (int i = 0; i < 4; ++i) d.submit(prompt_of(40, 1), 20, 3);
  for (int i = 0; i < 10; ++i) d.step();
  d.set_version(1);  // the driver checks hashes that depend on the version
  d.submit(prompt_of(40, 1), 5);
  d.drain();
  EXPECT_EQ(d.scheduler.stats().num_preemptions, 0);
}

TEST(Scheduler, TinyPoolPreemptsAndAllFinish) {
  Driver d({.num_blocks = 7, .max_seqs = 4, .step_tokens = 64, .max_preemptions = 2});
  for (int i = 0; i < 4; ++i) d.submit(prompt_of(10, i), 60);
  d.drain();
  EXPECT_GT(d.scheduler.stats().num_preemptions, 0);
  EXPECT_LE(d.scheduler.stats().num_preemptions, 4 * 2);
  EXPECT_EQ(d.finished.size(), 4u);
  EXPECT_EQ(d.finished[0], 0) << "the oldest is never the victim";
}

TEST(Scheduler, ZeroPreemptionsReservesTheWorstCase) {
  Driver d({.num_blocks = 7, .max_seqs = 4, .step_tokens = 64, .max_preemptions = 0});
  for (int i = 0; i < 8; ++i) d.submit(prompt_of(10, i / 2), 30, i / 2);
  d.drain();
  EXPECT_EQ(d.scheduler.stats().num_preemptions, 0);
}

TEST(Scheduler, OrderIsPriorityThenArrivalThenSubmission) {
  Driver d({.num_blocks = 100, .max_seqs = 1, .step_tokens = 64});
  d.submit(prompt_of(5, 0), 2, -1, 0, 50);
  d.submit(prompt_of(5, 1), 2, -1, 0, 0);
  d.submit(prompt_of(5, 2), 2, -1, 0, 0);
  d.submit(prompt_of(5, 3), 2, -1, 1, 0);
  d.drain();
  EXPECT_EQ(d.finished, (std::vector<int64_t>{3, 1, 2, 0}));
  EXPECT_GE(d.now_us, 50);
}

TEST(Scheduler, CachedPrefixesGoFirstButNobodyStarves) {
  Driver d({.num_blocks = 60, .max_seqs = 1, .step_tokens = 64});
  d.submit(prompt_of(40, 0), 2);
  d.drain();
  d.submit(prompt_of(40, 1), 2);  // 1
  for (int i = 0; i < Scheduler::kMaxOvertaken + 5; ++i) d.submit(prompt_of(40, 0), 2);
  d.drain();
  EXPECT_EQ(d.finished[1], 2) << "its prefix is cached";
  EXPECT_EQ(d.finished[Scheduler::kMaxOvertaken + 1], 1);
}

TEST(Scheduler, WrongRequestsAreNamed) {
  Scheduler s({.num_blocks = 4, .max_seqs = 2, .step_tokens = 8});
  EXPECT_THROW(s.submit({1, -1, {}, 4}), Error);
  EXPECT_THROW(s.submit({1, -1, prompt_of(4, 0), 0}), Error);
  EXPECT_THROW(s.submit({1, -1, prompt_of(40, 0), 10}), Error) << "49 tokens, 48 in the pool";
  s.submit({1, 5, prompt_of(40, 0), 9});
  EXPECT_THROW(s.submit({2, 5, prompt_of(40, 1), 9}), Error);
  EXPECT_THROW(Scheduler({.num_blocks = 4, .max_seqs = 9, .step_tokens = 8}), Error);
  EXPECT_THROW(Scheduler({.num_blocks = 1}), Error);
}

TEST(Scheduler, RandomOperationsLeakNothingAndStarveNobody) {
  std::mt19937 rng(11);
  int ops = 0;
  int64_t preemptions = 0;
  for (int round = 0; ops < 100000; ++round) {
    SchedulerConfig config;
    config.num_blocks = 6 + rng() % (round % 3 == 0 ? 60 : 10);
    config.max_seqs = 1 + rng() % 8;
    config.step_tokens = config.max_seqs + rng() % 40;
    config.chunk_tokens = rng() % 2 ? 0 : 1 + rng() % 20;
    config.max_preemptions = rng() % 4;
    config.prefix_cache = rng() % 2;
    Driver d(config);
    d.ahead = round % 2 == 1;
    int64_t submitted = 0;
    for (int i = 0; i < 1000; ++i, ++ops) {
      const uint32_t what = rng() % 100;
      if (what < 12 && d.scheduler.num_waiting() < 20) {
        const int32_t length = 1 + rng() % 45;
        const int64_t group = rng() % 2 ? -1 : i;
        for (uint32_t n = group < 0 ? 1 : 1 + rng() % 5; n > 0; --n, ++submitted) {
          const int32_t room = (config.num_blocks - 1) * kBlockTokens + 1 - length;
          d.submit(prompt_of(length, length % 3), 1 + rng() % std::min(35, room), group,
                   rng() % 3 == 0, d.now_us + rng() % 3);
        }
      } else if (what < 14 && !d.live().empty()) {
        auto victim = d.live().begin();
        std::advance(victim, rng() % d.live().size());
        d.abort(victim->first);
      } else if (what == 14) {
        d.set_version(i);
      } else if (what == 15) {
        d.settle();
        d.scheduler.reset_prefix_cache();
      } else {
        d.step(20);
      }
      ASSERT_EQ(d.scheduler.validate(), "") << "round " << round << " op " << i;
    }
    d.drain(20);
    const auto& s = d.scheduler;
    ASSERT_LE(s.stats().num_preemptions, submitted * config.max_preemptions);
    preemptions += s.stats().num_preemptions;
    d.scheduler.reset_prefix_cache();
    ASSERT_EQ(s.pool().num_free(), s.pool().capacity()) << "leak";
    ASSERT_FALSE(::testing::Test::HasFailure()) << "round " << round;
  }
  EXPECT_GT(preemptions, 100);
}

}  // namespace
}  // namespace keel::sched
