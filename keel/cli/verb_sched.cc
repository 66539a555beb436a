#include <CLI/CLI.hpp>
#include <chrono>

#include "keel/base/error.h"
#include "keel/cli/balance_cases.h"
#include "keel/cli/case_lines.h"
#include "keel/cli/verbs.h"
#include "keel/sched/draft_replay.h"
#include "keel/sched/trace_replay.h"

namespace keel::cli {
namespace {

struct Options {
  std::string kind, cases = "-";
};

double now_us() {
  const auto t = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(t).count();
}

struct DraftMode {
  const char* name;
  bool share;
  sched::DraftLimits limits;
  const char* peer;  // the best known value of this mode in the case
};

// min_probability: what keeps about half of the drafted tokens in each mode.
constexpr DraftMode kDraftModes[] = {
    {"shared", true, {.max_tokens = 8, .tree = true, .min_probability = 0.15}, "arctic_shared_8"},
    {"shared_path",
     true,
     {.max_tokens = 8, .tree = false, .min_probability = 0.1},
     "arctic_shared_8"},
    {"own", false, {.max_tokens = 8, .tree = true, .min_probability = 0.177}, "arctic_own_8"},
    {"own_path", false, {.max_tokens = 8, .tree = false, .min_probability = 0.15}, "arctic_own_8"},
};

std::vector<OrderedJson> run_drafts(const OrderedJson& row) {
  if (!row.contains("siblings") && row.contains("vocab")) return {};  // the file's summary
  const auto group = sched::draft_group_case(row);
  std::vector<OrderedJson> lines;
  for (const auto& mode : kDraftModes) {
    const double start = now_us();
    const auto replay = sched::replay_drafts(group, mode.limits, mode.share);
    const double us = now_us() - start;
    OrderedJson plan = OrderedJson::array();
    for (const auto& s : replay.steps) plan.push_back({s.sibling, s.tokens, s.parents});
    OrderedJson out = {{"id", row.value("id", "")}, {"mode", mode.name}, {"plan", plan}};
    out["score"] = replay.tokens_per_step();
    if (row.contains("values") && row["values"].contains(mode.peer)) {
      out["ratio"] =
          replay.tokens_per_step() / row["values"][mode.peer]["tokens_per_step"].get<double>();
    }
    out["accept_rate"] = replay.accept_rate();
    out["us"] = us;
    out["us_per_token"] = us / static_cast<double>(std::max<int64_t>(1, replay.tokens));
    lines.push_back(std::move(out));
  }
  return lines;
}

std::vector<OrderedJson> run_traces(const OrderedJson& row) {
  const auto trace = sched::trace_case(row);
  KEEL_REQUIRE(row.contains("reference") && row.contains("bound_cached_tokens_blocks"),
               "[kv_traces] expected pools in `reference` and bound_cached_tokens_blocks");
  const double bound = std::max(1.0, row["bound_cached_tokens_blocks"].get<double>());
  std::vector<OrderedJson> lines;
  for (const auto& reference : row["reference"]) {
    const int32_t pool = reference.at("pool_blocks");
    const auto replay = sched::replay_trace(trace, pool, now_us);
    OrderedJson steps = OrderedJson::array();
    for (const auto& s : replay.steps) {
      OrderedJson rows = OrderedJson::array();
      for (const auto& r : s.rows) rows.push_back({r.request, r.first, r.count});
      steps.push_back({s.step, rows});
    }
    OrderedJson out = {{"id", row.value("id", "")}, {"mode", fmt::format("pool_{}", pool)}};
    out["plan"] = {{"steps", steps}, {"first_hits", replay.first_hits}};
    out["score"] = replay.first_hit_tokens();
    out["ratio"] = static_cast<double>(replay.first_hit_tokens()) / bound;
    if (reference.contains("first_hit_over_bound")) {
      out["lru_ratio"] = reference["first_hit_over_bound"];
    }
    out["hit_tokens"] = replay.hit_tokens;
    out["computed_tokens"] = replay.stats.computed_tokens;
    out["preemptions"] = replay.stats.num_preemptions;
    out["steps"] = replay.num_steps;
    out["us"] = replay.plan_us;
    lines.push_back(std::move(out));
  }
  return lines;
}

}  // namespace

Action define_sched(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_option("kind", o->kind,
                 "suffix_groups, kv_traces, rollout_traces or rollout_rebalance_states")
      ->required()
      ->check(CLI::IsMember(
          {"suffix_groups", "kv_traces", "rollout_traces", "rollout_rebalance_states"}));
  app.add_option("--cases", o->cases,
                 "JSON lines -> {\"id\",\"mode\",\"plan\",\"score\",\"ratio\",\"us\"} for each "
                 "mode; - = standard input");
  return [o] {
    if (o->kind.starts_with("rollout")) {
      return for_each_case_rows(o->cases, balance_runner(o->kind));
    }
    return for_each_case_rows(o->cases, o->kind == "kv_traces" ? run_traces : run_drafts);
  };
}

}  // namespace keel::cli
