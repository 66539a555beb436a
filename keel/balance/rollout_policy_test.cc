#include "keel/balance/rollout_policy.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <random>

#include "keel/balance/rollout_replay.h"
#include "keel/balance/test_cases.h"
#include "keel/base/error.h"

namespace keel::balance {
namespace {

double seconds_of(const OrderedJson& row, const char* policy) {
  return row["policies"][policy]["makespan_s"];
}

// Every answer starts, ends and is on one rank at a time.
void expect_whole(const RolloutTrace& trace, const RolloutResult& result) {
  std::vector<int32_t> started(trace.lengths.size(), 0);
  for (const auto& e : result.events) {
    ASSERT_LT(e.request, static_cast<int32_t>(started.size()));
    if (e.kind == RolloutEvent::Kind::kStart) ++started[e.request];
  }
  for (const int32_t s : started) ASSERT_GE(s, 1);
  EXPECT_GT(result.makespan_ms, 0);
  EXPECT_GE(result.idle, -1e-9);
  EXPECT_LE(result.tail_after_90, 1);
}

TEST(RolloutLengths, LearnsFromSiblingsAndFromWhatStillRuns) {
  std::mt19937 rng(3);
  std::normal_distribution<double> normal;
  RolloutLengths lengths(32768);
  std::vector<RolloutProgress> answers;
  for (int32_t g = 0; g < 100; ++g) {
    const double prompt = normal(rng) * 0.8;
    for (int i = 0; i < 8; ++i) {
      const auto length = static_cast<int32_t>(std::exp(8 + prompt + 0.3 * normal(rng)));
      // Cut off at 4000: only the short ones are done.
      answers.push_back({g, std::min(length, 4000), length <= 4000});
    }
  }
  for (int i = 0; i < 30; ++i) lengths.fit(answers, 101);
  EXPECT_NEAR(lengths.remaining(100, 0), std::exp(8 + 0.73 / 2), 1500) << "a new prompt";
  int32_t short_group = -1, long_group = -1;
  for (int32_t g = 0; g < 100; ++g) {
    int done = 0;
    for (int i = 0; i < 8; ++i) done += answers[g * 8 + i].done;
    if (done == 8) short_group = g;
    if (done == 0) long_group = g;
  }
  ASSERT_GE(short_group, 0);
  ASSERT_GE(long_group, 0);
  EXPECT_LT(lengths.remaining(short_group, 0), 0.5 * lengths.remaining(long_group, 0));
  EXPECT_LT(lengths.exceeds(short_group, 0, 8000), lengths.exceeds(long_group, 0, 8000));
  EXPECT_EQ(lengths.exceeds(long_group, 1000, 40000), 0);
}

RC_GTEST_PROP(RolloutPolicy, PlansAreValid, ()) {
  RolloutShape shape;
  shape.ranks = *rc::gen::inRange(1, 9);
  shape.max_running = *rc::gen::element(1, 7, 16, 64);
  shape.buckets = {1, 2, 4, 8, 16, 32, 64};
  shape.step_ms = {10, 11, 12, 14, 18, 26, 42};
  shape.kv_capacity_tokens = *rc::gen::element(1000, 100000, 10000000);
  shape.max_new_tokens = *rc::gen::element(1, 100, 32768);
  shape.max_moves = *rc::gen::element(0, 3, 64);
  shape.max_move_tokens = *rc::gen::element(0, 20000, 1000000);
  RolloutPolicy policy(shape);
  std::vector<RolloutRequest> requests(*rc::gen::inRange<size_t>(0, 120));
  std::vector<int32_t> running(shape.ranks, 0);
  for (auto& r : requests) {
    r.group = *rc::gen::inRange(0, 10);
    r.prompt_tokens = 16;
    r.generated = *rc::gen::inRange(0, shape.max_new_tokens + 1);
    r.done = *rc::gen::inRange(0, 3) == 0;
    r.rank = r.done ? -1 : *rc::gen::inRange(-1, shape.ranks);
    r.active = r.rank >= 0 && running[r.rank] < shape.max_running && *rc::gen::arbitrary<bool>();
    running[std::max(0, r.rank)] += r.active;
  }
  for (int i = 0; i < 2; ++i) RC_ASSERT(validate(shape, requests, policy.plan(requests)) == "");
}

TEST(RolloutPolicy, WrongShapesAreNamed) {
  RolloutShape shape;
  shape.buckets = {4};
  shape.step_ms = {10};
  shape.max_new_tokens = 10;
  EXPECT_NO_THROW(RolloutPolicy{shape});
  auto wrong = shape;
  wrong.ranks = 0;
  EXPECT_THROW(RolloutPolicy{wrong}, Error);
  wrong = shape;
  wrong.max_running = 5;
  EXPECT_THROW(RolloutPolicy{wrong}, Error);
  wrong = shape;
  wrong.step_ms = {1, 2};
  EXPECT_THROW(RolloutPolicy{wrong}, Error);
  wrong = shape;
  wrong.max_new_tokens = 0;
  EXPECT_THROW(RolloutPolicy{wrong}, Error);
}

TEST(RolloutReplay, GoldenTraces) {
  for (const auto& row : read_lines(test::golden("sched/rollout_traces.jsonl"))) {
    const auto trace = rollout_trace(row);
    const auto result = replay_rollout(trace);
    expect_whole(trace, result);
    const auto again = replay_rollout(trace);
    EXPECT_EQ(again.makespan_ms, result.makespan_ms) << "not deterministic";
    EXPECT_EQ(again.events.size(), result.events.size());
    EXPECT_LE(result.makespan_ms / 1e3, seconds_of(row, "verl_order_buckets_rebalance"));
    EXPECT_GE(result.makespan_ms / 1e3, row["bound_s"].get<double>());
  }
}

TEST(RolloutReplay, EdgeShapes) {
  RolloutTrace trace;
  trace.shape.ranks = 4;
  trace.shape.max_running = 2;
  trace.shape.buckets = {1, 2};
  trace.shape.step_ms = {10, 12};
  trace.shape.kv_capacity_tokens = 100;
  trace.shape.max_new_tokens = 64;
  trace.prompt_tokens = 4;
  trace.check_steps = 10;
  trace.check_ms = 100;
  for (const bool lockstep : {true, false}) {
    trace.lockstep = lockstep;
    for (const std::vector<int32_t>& lengths :
         {std::vector<int32_t>{1}, std::vector<int32_t>(40, 64), std::vector<int32_t>{64, 1, 1}}) {
      trace.lengths = lengths;
      expect_whole(trace, replay_rollout(trace));
    }
  }
}

TEST(RolloutReplay, BeatsPublishedPoliciesOnTheCases) {
  const auto path = test::cases("rollout_traces.jsonl");
  if (path.empty()) GTEST_SKIP() << "no ../shared/cases/rollout_traces.jsonl";
  double all = 0, lockstep = 0;
  int num_all = 0, num_lockstep = 0;
  for (const auto& row : read_lines(path)) {
    const double seconds = replay_rollout(rollout_trace(row)).makespan_ms / 1e3;
    const double ratio = seconds / seconds_of(row, "verl_order_static_graph");
    EXPECT_LE(seconds, seconds_of(row, "verl_order_buckets_rebalance")) << row["id"];
    EXPECT_LE(seconds, seconds_of(row, "interleaved_buckets_rebalance")) << row["id"];
    all += ratio;
    ++num_all;
    if (row["lockstep"].get<bool>()) {
      lockstep += ratio;
      ++num_lockstep;
    } else {
      EXPECT_LE(seconds / seconds_of(row, "oracle_tail_isolation"), 1.22) << row["id"];
    }
  }
  EXPECT_LE(all / num_all, 0.645);
  EXPECT_LE(lockstep / num_lockstep, 0.630);
}

}  // namespace
}  // namespace keel::balance
