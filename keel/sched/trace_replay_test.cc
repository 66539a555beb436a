#include "keel/sched/trace_replay.h"

#include <gtest/gtest.h>

#include <set>

#include "keel/base/error.h"
#include "keel/base/test_data.h"
#include "keel/sched/test_cases.h"

namespace keel::sched {
namespace {

struct Score {
  double keel = 0, lru = 0;
};

// Replays one pool and checks what the case files' README promises of every scheduler.
Score check_pool(const OrderedJson& row, const OrderedJson& reference) {
  const auto trace = trace_case(row);
  const int32_t pool = reference["pool_blocks"];
  const auto replay = replay_trace(trace, pool);
  const auto bound = row["bound_per_request_blocks"].get<std::vector<int32_t>>();
  int64_t prompts = 0, outputs = 0, requests = 0;
  for (size_t r = 0; r < trace.requests.size(); ++r) {
    if (replay.first_hits[r] < 0) continue;
    EXPECT_LE(replay.first_hits[r], bound[r]) << row["id"] << " request " << r;
    prompts += static_cast<int64_t>(trace.requests[r].prompt.size());
    outputs += static_cast<int64_t>(trace.requests[r].output.size());
    ++requests;
  }
  EXPECT_EQ(replay.stats.num_finished, requests) << "every request ends with its whole output";
  EXPECT_LE(replay.stats.peak_used_blocks, pool);
  if (replay.stats.num_preemptions == 0) {
    EXPECT_EQ(replay.stats.computed_tokens + replay.hit_tokens, prompts + outputs - requests);
  }
  const double total = row["bound_cached_tokens_blocks"];
  return {static_cast<double>(replay.first_hit_tokens()) / total,
          reference["first_hit_over_bound"]};
}

TEST(TraceReplay, GoldenTraces) {
  for (const auto& row : test::read_cases(keel::test::golden("sched/kv_traces.jsonl"))) {
    for (const auto& reference : row["reference"]) {
      const auto score = check_pool(row, reference);
      EXPECT_GE(score.keel, score.lru - 1e-4) << row["id"] << " " << reference["pool_blocks"];
      if (row["kind"] == "cycle") {
        EXPECT_GT(score.keel, 0.5);
      }
    }
  }
}

TEST(TraceReplay, BeatsLruWhereThePoolIsTight) {
  const auto path = keel::test::cases("kv_traces.jsonl");
  if (path.empty()) GTEST_SKIP() << "no ../shared/cases/kv_traces.jsonl";
  double keel = 0, lru = 0;
  for (const auto& row : test::read_cases(path)) {
    for (const auto& reference : row["reference"]) {
      const auto score = check_pool(row, reference);
      EXPECT_GE(score.keel, score.lru - 0.001) << row["id"] << " " << reference["pool_blocks"];
      if (row["kind"] == "cycle") {
        EXPECT_GT(score.keel, 0.5);
      } else if (score.lru < 0.99) {
        keel += score.keel;
        lru += score.lru;
      }
    }
  }
  EXPECT_GE(keel, 1.15 * lru);
}

TEST(TraceReplay, WrongCasesAreNamed) {
  EXPECT_THROW(trace_case(OrderedJson::parse("{}")), Error);
  EXPECT_THROW(trace_case(OrderedJson::parse(
                   R"({"token_budget":64,"max_num_seqs":4,"block_size":32,"requests":[]})")),
               Error);
}

}  // namespace
}  // namespace keel::sched
