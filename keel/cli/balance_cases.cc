#include "keel/cli/balance_cases.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "keel/balance/attention_partition.h"
#include "keel/balance/context_parallel.h"
#include "keel/balance/eplb.h"
#include "keel/balance/expert_placement.h"
#include "keel/balance/lockstep_batches.h"
#include "keel/balance/rollout_rebalance.h"
#include "keel/balance/rollout_replay.h"
#include "keel/balance/sequence_balance.h"
#include "keel/base/error.h"

namespace keel::cli {
namespace {

using Lengths = std::vector<int64_t>;

// Calls `plan` once, and twice more if that is quick; stores the shortest time.
template <class F>
auto timed(const F& plan, double& us) {
  using Clock = std::chrono::steady_clock;
  us = 0;
  for (int run = 0;; ++run) {
    const auto before = Clock::now();
    auto out = plan();
    const double took = std::chrono::duration<double, std::micro>(Clock::now() - before).count();
    us = run == 0 ? took : std::min(us, took);
    if (run == 2 || us > 50000) return out;
  }
}

template <class T>
T field(const OrderedJson& row, const char* name) {
  KEEL_REQUIRE(row.contains(name), "[case] expected a field \"{}\", got none", name);
  try {
    return row[name].get<T>();
  } catch (const OrderedJson::exception& e) {
    throw_invalid("[case.{}] expected another type: {}", name, e.what());
  }
}

OrderedJson line(const OrderedJson& row, const char* mode, OrderedJson plan, double score,
                 double us) {
  OrderedJson out;
  out["id"] = row.contains("id") ? row["id"] : OrderedJson(nullptr);
  out["mode"] = mode;
  out["plan"] = std::move(plan);
  out["score"] = score;
  out["us"] = us;
  return out;
}

// What best.<path> says, or 0 where the case does not know.
double best_of(const OrderedJson& row, const char* part, const char* name) {
  const OrderedJson* at = row.contains("best") ? &row["best"] : nullptr;
  if (at != nullptr && part != nullptr) at = at->contains(part) ? &(*at)[part] : nullptr;
  return at != nullptr && at->contains(name) ? (*at)[name].get<double>() : 0;
}

void add_ratio(OrderedJson& line, double score, double reference) {
  if (reference > 0) line["ratio"] = score / reference;
}

balance::SequenceCost cost_of(const OrderedJson& row) {
  return {field<int64_t>(row, "c1"), field<int64_t>(row, "c2")};
}

std::vector<OrderedJson> seqlen_balance(const OrderedJson& row) {
  const auto lengths = field<Lengths>(row, "lengths");
  const auto ranks = field<int32_t>(row, "ranks");
  std::vector<OrderedJson> lines;
  for (const auto mode : {balance::CountMode::kEqual, balance::CountMode::kFree}) {
    const bool equal = mode == balance::CountMode::kEqual;
    if (equal && std::ssize(lengths) % std::max(ranks, 1) != 0) continue;
    double us = 0;
    const auto plan = timed(
        [&] { return balance::balance_sequences(lengths, ranks, cost_of(row), {.mode = mode}); },
        us);
    const auto score = static_cast<double>(plan.max_cost());
    const char* name = equal ? "equal" : "free";
    lines.push_back(line(row, name, plan.ranks, score, us));
    lines.back()["score"] = plan.max_cost();
    lines.back()["lower_bound"] = plan.lower_bound;
    add_ratio(lines.back(), score, best_of(row, name, "max"));
  }
  return lines;
}

std::vector<OrderedJson> micro_batches(const OrderedJson& row) {
  const auto lengths = field<Lengths>(row, "lengths");
  const balance::LockstepTask task{.cap_tokens = field<int64_t>(row, "cap"),
                                   .num_ranks = field<int32_t>(row, "ranks"),
                                   .cost = cost_of(row)};
  double us = 0;
  const auto plan = timed([&] { return balance::plan_lockstep_batches(lengths, task); }, us);
  double total = 0;
  for (const int64_t s : lengths) total += static_cast<double>(task.cost.of(s));
  auto count = line(row, "count", plan.ranks, plan.num_positions(), us);
  count["score"] = plan.num_positions();
  count["lower_bound"] = plan.lower_bound;
  count["oversized"] = plan.oversized;
  add_ratio(count, plan.num_positions(), best_of(row, nullptr, "per_rank"));
  const auto cost = static_cast<double>(plan.lockstep_cost);
  auto lockstep = line(row, "lockstep", plan.ranks, cost, us);
  lockstep["score"] = plan.lockstep_cost;
  add_ratio(lockstep, cost, total / task.num_ranks);
  return {count, lockstep};
}

std::vector<OrderedJson> hdp(const OrderedJson& row) {
  const auto lengths = field<Lengths>(row, "lengths");
  balance::HdpTask task{.num_ranks = field<int32_t>(row, "ranks"),
                        .capacity_tokens = field<int64_t>(row, "capacity"),
                        .cost = {}};
  task.cost.compute = cost_of(row);
  task.cost.ring_latency = field<double>(row, "alpha");
  task.cost.ring_per_token = field<double>(row, "beta");
  double us = 0;
  const auto plan = timed([&] { return balance::plan_context_groups(lengths, task); }, us);
  OrderedJson steps = OrderedJson::array();
  for (const auto& step : plan.steps) {
    steps.push_back({{"ranks", step.ranks}, {"sequences", step.sequences}});
  }
  auto out = line(row, "makespan", std::move(steps), plan.makespan, us);
  out["lower_bound"] = plan.lower_bound;
  out["groups"] = plan.num_groups;
  add_ratio(out, plan.makespan, plan.lower_bound);
  return {out};
}

template <class T>
std::vector<std::vector<T>> loads_of(const OrderedJson& row) {
  auto loads = field<std::vector<std::vector<T>>>(row, "load");
  KEEL_REQUIRE(!loads.empty() && !loads[0].empty(), "[case.load] expected loads, got none");
  return loads;
}

balance::ExpertLayout layout_of(const OrderedJson& row, size_t num_experts) {
  return {static_cast<int32_t>(num_experts), field<int32_t>(row, "replicas"),
          field<int32_t>(row, "gpus")};
}

// Placements of all layers or steps; the score is the mean of max / mean.
OrderedJson placement_line(const OrderedJson& row, const char* mode,
                           const std::vector<balance::ExpertPlacement>& placements,
                           const std::vector<double>& values, double us) {
  OrderedJson plan = OrderedJson::array();
  for (const auto& p : placements) plan.push_back(p.expert_of);
  const double mean = values.empty() ? 1
                                     : std::accumulate(values.begin(), values.end(), 0.0) /
                                           static_cast<double>(values.size());
  auto out = line(row, mode, std::move(plan), mean, us);
  out["ratio"] = mean;
  out["values"] = values;
  return out;
}

std::vector<OrderedJson> eplb(const OrderedJson& row) {
  const auto counts = loads_of<int64_t>(row);
  const auto loads = loads_of<double>(row);
  const auto layout = layout_of(row, loads[0].size());
  const auto groups = field<int32_t>(row, "groups");
  const auto nodes = field<int32_t>(row, "nodes");
  std::vector<OrderedJson> lines;
  const auto run = [&](const char* mode, const auto& place) {
    double us = 0;
    const auto placements = timed(
        [&] {
          std::vector<balance::ExpertPlacement> all;
          for (size_t l = 0; l < loads.size(); ++l) all.push_back(place(l));
          return all;
        },
        us);
    std::vector<double> values;
    for (size_t l = 0; l < loads.size(); ++l) {
      values.push_back(balance::imbalance(loads[l], layout, placements[l]));
    }
    lines.push_back(placement_line(row, mode, placements, values, us));
  };
  run("keel", [&](size_t l) { return balance::place_experts(loads[l], layout); });
  run("published", [&](size_t l) { return balance::eplb(counts[l], {layout, groups, nodes}); });
  run("published_global", [&](size_t l) { return balance::eplb(counts[l], {layout, 1, 1}); });
  return lines;
}

// Follows the stream; online: each step's placement is made before its loads are seen, and a
// fifteenth of the replicas may move. Exact: from the step's own loads, as few moves as bring the
// largest load within 2 % of the best possible.
std::vector<OrderedJson> eplb_stream(const OrderedJson& row) {
  const auto loads = loads_of<double>(row);
  const auto layout = layout_of(row, loads[0].size());
  std::vector<OrderedJson> lines;
  for (const bool online : {true, false}) {
    double us = 0;
    const auto placements = timed(
        [&] {
          balance::RouterForecast forecast(layout.num_experts);
          std::vector<balance::ExpertPlacement> all = {balance::place_experts(loads[0], layout)};
          for (size_t s = 1; s < loads.size(); ++s) {
            forecast.observe(loads[s - 1]);
            all.push_back(online ? balance::follow_load(forecast.next(), layout, all.back(),
                                                        layout.num_replicas / 15)
                                 : balance::follow_load(loads[s], layout, all.back(),
                                                        layout.num_replicas, {.tolerance = 0.02}));
          }
          return all;
        },
        us);
    std::vector<double> values;
    int64_t moved = 0;
    for (size_t s = 1; s < loads.size(); ++s) {
      values.push_back(balance::imbalance(loads[s], layout, placements[s]));
      moved += balance::count_moved(layout, placements[s - 1], placements[s]);
    }
    lines.push_back(placement_line(row, online ? "online" : "exact", placements, values,
                                   us / static_cast<double>(loads.size())));
    lines.back()["moved"] = moved;
    lines.back()["worst"] = values.empty() ? 1 : *std::max_element(values.begin(), values.end());
  }
  return lines;
}

std::vector<OrderedJson> attention_partition(const OrderedJson& row) {
  std::vector<balance::AttentionRequest> requests;
  for (const auto& r : field<std::vector<std::array<int64_t, 2>>>(row, "requests")) {
    requests.push_back({r[0], r[1]});
  }
  const balance::AttentionShape shape{field<int32_t>(row, "g"), field<int32_t>(row, "hkv"),
                                      field<int32_t>(row, "mbase"), field<int32_t>(row, "sbase")};
  const auto cores = field<int32_t>(row, "cores");
  double us = 0;
  const auto split = timed([&] { return balance::split_contiguous(requests, shape, cores); }, us);
  const double mean =
      static_cast<double>(std::accumulate(split.loads.begin(), split.loads.end(), int64_t{0})) /
      cores;
  OrderedJson published = {{"cores_used", split.num_cores}};
  published["ends"] = OrderedJson::array();
  for (const auto& end : split.ends) {
    published["ends"].push_back({end.batch_head, end.row, end.block});
  }
  const int64_t largest =
      split.loads.empty() ? 0 : *std::max_element(split.loads.begin(), split.loads.end());
  auto first = line(row, "published", std::move(published), static_cast<double>(largest), us);
  add_ratio(first, static_cast<double>(largest), mean);

  const balance::AttentionOptions options;
  const auto plan =
      timed([&] { return balance::plan_attention(requests, shape, cores, {}, options); }, us);
  OrderedJson own = {{"split_tokens", options.split_tokens}};
  own["cores"] = OrderedJson::array();
  for (const auto& core : plan.cores) {
    OrderedJson runs = OrderedJson::array();
    for (const auto& run : core) {
      runs.push_back({run.request, run.kv_head, run.row, run.kv_begin, run.kv_end});
    }
    own["cores"].push_back(std::move(runs));
  }
  auto second = line(row, "keel", std::move(own), static_cast<double>(plan.max_load()), us);
  add_ratio(second, static_cast<double>(plan.max_load()), mean);
  second["partials"] = plan.num_partials;
  second["merge_cost"] = plan.merge_cost;
  return {second, first};
}

double now_us() {
  const auto t = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(t).count();
}

std::vector<OrderedJson> rollout_rebalance_states(const OrderedJson& row) {
  return balance::run_rollout_rebalance_case(row, now_us);
}

std::vector<OrderedJson> rollout_traces(const OrderedJson& row) {
  return balance::run_rollout_trace_case(row, now_us);
}

struct Kind {
  const char* name;
  std::vector<OrderedJson> (*run)(const OrderedJson&);
};

constexpr Kind kKinds[] = {{"seqlen_balance", seqlen_balance},
                           {"micro_batches", micro_batches},
                           {"hdp", hdp},
                           {"eplb", eplb},
                           {"eplb_stream", eplb_stream},
                           {"attention_partition", attention_partition},
                           {"rollout_rebalance_states", rollout_rebalance_states},
                           {"rollout_traces", rollout_traces}};

}  // namespace

std::string balance_kinds() {
  std::string names;
  for (const Kind& kind : kKinds) names += (names.empty() ? "" : ", ") + std::string(kind.name);
  return names;
}

BalanceRunner balance_runner(const std::string& kind) {
  std::string name = kind;
  std::replace(name.begin(), name.end(), '-', '_');
  const Kind* found = nullptr;
  int matches = 0;
  for (const Kind& k : kKinds) {
    if (k.name == name) return k.run;
    if (!name.empty() && std::string(k.name).starts_with(name)) {
      found = &k;
      ++matches;
    }
  }
  KEEL_REQUIRE(matches == 1, "[balance] expected a kind ({}), got {}", balance_kinds(), kind);
  return found->run;
}

}  // namespace keel::cli
