#include "keel/sim/plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "keel/base/error.h"
#include "keel/sim/hardware.h"
#include "keel/sim/numbers.h"

namespace keel::sim {
namespace {

constexpr int64_t kMaxContextRanks = 16;
constexpr int64_t kMaxStages = 16;
constexpr double kGiB = 1024.0 * 1024 * 1024;
// Routing is never even: the fullest expert rank is planned for this many times the mean.
constexpr double kRoutingReserve = 2;
constexpr double kFragmentation = 0.96;  // share of a device that a plan fills at most

bool is_split(const SimRun& run) { return run.placement.starts_with("split"); }
int64_t train_world(const SimRun& run) {
  return is_split(run) && run.train.devices > 0 ? run.train.devices : run.devices;
}
int64_t rollout_world(const SimRun& run) {
  return is_split(run) && run.rollout.devices > 0 ? run.rollout.devices : run.devices;
}

// What is assumed where the request is silent.
SimRun with_defaults(SimRun run, const Catalog& catalog) {
  const bool ascend = catalog.find_hardware(run.hardware).vendor == "huawei";
  if (run.placement.empty()) run.placement = "colocated";
  if (run.train.engine.empty()) run.train.engine = ascend ? "megatron-mindspeed" : "megatron";
  if (run.engine.name.empty()) run.engine.name = ascend ? "vllm-ascend" : "vllm";
  if (run.devices_per_node == 0) run.devices_per_node = ascend ? 16 : 8;
  if (run.engine.memory_fraction == 0) run.engine.memory_fraction = 0.87;
  if (run.engine.max_batched_tokens == 0) {
    run.engine.max_batched_tokens = std::max<int64_t>(8192, run.workload.prompt_len.max);
  }
  run.kind = RunKind::kRlStep;
  return run;
}

void check_request(const SimRun& run) {
  const auto& w = run.workload;
  KEEL_REQUIRE(run.devices > 0, "[plan.devices] expected at least 1, got 0; try --devices 8");
  KEEL_REQUIRE(
      w.prompts > 0 && w.samples_per_prompt > 0,
      "[plan.workload] expected prompts and samples_per_prompt above 0, got {} and {}; try "
      "--prompts 512 --samples 16",
      w.prompts, w.samples_per_prompt);
  KEEL_REQUIRE(
      w.response_len.max > 0 || w.total_len.max > 0,
      "[plan.workload.response_len] expected a longest response; try --response-max 32768");
}

struct TrainCandidate {
  SimRun run;
  double bytes = 0, seconds = 0;
};

TrainMemorySettings plan_memory_settings(const SimRun& run) {
  auto s = train_memory_settings(run);
  s.micro_batch_tokens = to_double(longest_sequence(run.workload));
  s.micro_batches =
      std::max<int64_t>(1, run.workload.prompts * run.workload.samples_per_prompt / s.layout.dp);
  s.keeps_logits = false;
  s.worst_rows_factor = kRoutingReserve;
  return s;
}

double train_budget(const SimRun& run, const HardwareSpec& hardware, double context_bytes) {
  return kFragmentation * hardware.memory_bytes - (is_split(run) ? 0 : context_bytes);
}

MemoryUse train_use(const SimRun& run, const TwinModel& model, const Coefficients& c,
                    double context_bytes) {
  auto use = largest_stage(train_memory(model, plan_memory_settings(run), c));
  if (!is_split(run)) use.parts.emplace_back("rollout_engine", context_bytes);
  return use;
}

void set_layout(SimRun& run, const balance::Layout& l) {
  auto& t = run.train;
  t.devices = train_world(run);
  t.tp = l.tp;
  t.pp = l.pp;
  t.cp = l.cp;
  t.ulysses = 1;
  t.ep = l.ep;
  t.etp = l.etp;
  t.dp = l.dp;
  t.vp = 0;
  t.pp_layers.clear();
}

std::vector<balance::Layout> train_layouts(const SimRun& run, const TwinModel& model) {
  std::vector<balance::Layout> out;
  const int64_t sequences = run.workload.prompts * run.workload.samples_per_prompt;
  for (const auto& l :
       balance::legal_layouts(layout_model(model), static_cast<int32_t>(train_world(run)))) {
    const bool sensible = l.tp <= run.devices_per_node && l.cp <= kMaxContextRanks &&
                          l.pp <= kMaxStages && l.dp <= sequences && l.etp == 1 &&
                          l.pp * 4 <= model.layers;
    if (sensible) out.push_back(l);
  }
  return out;
}

// With and without swapping the optimizer: the first recomputation, cheapest first, that fits.
std::vector<TrainCandidate> fitting(const SimRun& base, const balance::Layout& layout,
                                    const TwinModel& model, const Coefficients& c, double budget,
                                    double* least_bytes) {
  const std::vector<const char*> modes =
      model.is_moe() ? std::vector<const char*>{"none", "moe_zero_memory_level0",
                                                "moe_zero_memory_level1", "full"}
                     : std::vector<const char*>{"none", "full"};
  std::vector<TrainCandidate> out;
  for (const char* optimizer : {"", "swap_to_host"}) {
    for (const char* mode : modes) {
      TrainCandidate candidate{base, 0, 0};
      set_layout(candidate.run, layout);
      candidate.run.train.recompute = mode;
      candidate.run.train.optimizer = optimizer;
      const auto settings = plan_memory_settings(candidate.run);
      candidate.bytes = largest_stage(train_memory(model, settings, c)).total();
      *least_bytes = std::min(*least_bytes, candidate.bytes);
      if (candidate.bytes > budget) continue;
      const bool cheaper_known = !out.empty() && out.back().run.train.recompute == mode;
      if (!cheaper_known) out.push_back(std::move(candidate));
      break;
    }
  }
  return out;
}

double predicted(const SimRun& run, const Catalog& catalog, const Calibration& calibration) {
  double seconds = 0;
  PredictOptions options;
  options.num_seeds = 1;
  for (const auto& p : predict(run, catalog, calibration, options)) seconds += p.value;
  return seconds;
}

// Update and the log-prob passes that the workload asks for.
double train_seconds(SimRun run, const Catalog& catalog, const Calibration& calibration) {
  run.kind = RunKind::kTrainStep;
  run.targets = {"update_s"};
  if (run.workload.ref_pass) run.targets.emplace_back("ref_s");
  if (run.workload.old_logprob_pass) run.targets.emplace_back("forward_s");
  return predicted(run, catalog, calibration);
}

std::vector<int64_t> halving_sizes(int64_t largest) {
  std::vector<int64_t> out;
  for (int64_t size = largest; size >= 4; size /= 2) out.push_back(size);
  if (out.empty()) out.push_back(largest);
  return out;
}

struct RolloutCandidate {
  SimRun run;
  int64_t kv_tokens = 0;
  double seconds = 0;
};

std::vector<RolloutCandidate> rollout_candidates(const SimRun& base, const TwinModel& model,
                                                 const Catalog& catalog,
                                                 const Calibration& calibration) {
  std::vector<RolloutCandidate> out;
  const int64_t world = rollout_world(base);
  for (int64_t tp = 1; tp <= std::min(world, base.devices_per_node); tp *= 2) {
    if (world % tp != 0 || model.q_heads % tp != 0) continue;
    SimRun run = base;
    auto& r = run.rollout;
    r.devices = world;
    r.tp = tp;
    r.pp = 1;
    r.dp = world / tp;
    int64_t ep = std::min(world, std::max<int64_t>(1, model.experts));
    while (ep > 1 && (world % ep != 0 || model.experts % ep != 0)) --ep;
    r.ep = model.is_moe() ? ep : 1;
    run.engine.lockstep_dp = r.ep > tp;
    run.engine.prompt_order = "interleaved";
    run.engine.attention_split = "balanced";
    run.engine.rebalance = r.dp > 1;
    if (model.is_moe() && run.engine.chunk_moe == 0) run.engine.chunk_moe = 512;
    const auto memory = run_rollout_memory(run, catalog, calibration);
    if (memory.kv_tokens < longest_sequence(run.workload)) continue;
    const int64_t fit = slots_that_fit(run, catalog.lengths, memory.kv_tokens);
    int64_t slots = 1;
    while (slots * 2 <= fit) slots *= 2;
    const int64_t samples = run.workload.prompts * run.workload.samples_per_prompt / r.dp;
    if (fit >= samples && slots < fit) slots *= 2;  // every sample runs at once
    for (const int64_t n : {slots, slots / 2}) {
      if (n < 1) continue;
      run.engine.max_num_seqs = n;
      run.engine.graph_sizes = halving_sizes(n);
      out.push_back({run, memory.kv_tokens, 0});
    }
  }
  return out;
}

double rollout_seconds(SimRun run, const Catalog& catalog, const Calibration& calibration) {
  run.kind = RunKind::kRollout;
  run.targets = {"rollout_s"};
  return predicted(run, catalog, calibration);
}

std::string largest_part(const Prediction& p) {
  double total = 0;
  const std::pair<std::string, double>* most = nullptr;
  for (const auto& part : p.parts) {
    total += part.second;
    if (most == nullptr || part.second > most->second) most = &part;
  }
  if (most == nullptr || total <= 0) return "";
  return fmt::format("{} {:.0f} %", most->first, 100 * most->second / total);
}

PlanChoice evaluate_choice(SimRun run, const Catalog& catalog, const Calibration& calibration,
                           int64_t num_seeds) {
  PlanChoice choice;
  run.kind = RunKind::kRlStep;
  run.targets = {"rollout_s"};
  if (run.workload.ref_pass) run.targets.emplace_back("ref_s");
  if (run.workload.old_logprob_pass) run.targets.emplace_back("old_logprob_s");
  for (const char* target : {"update_s", "reshard_s", "step_s"}) run.targets.emplace_back(target);
  PredictOptions options;
  options.num_seeds = num_seeds;
  for (const auto& p : predict(run, catalog, calibration, options)) {
    choice.stages.push_back({p.target, p.value, p.spread, largest_part(p)});
    if (p.target == "step_s") choice.step_s = p.value;
  }
  const auto& hardware = catalog.find_hardware(run.hardware);
  const Coefficients c(calibration, hardware.id, hardware.vendor, run.train.engine, "");
  choice.train_memory = train_use(run, catalog.find_model(run.model), c,
                                  engine_context_bytes(run, catalog, calibration));
  const auto rollout = run_rollout_memory(run, catalog, calibration);
  choice.rollout_memory = rollout.use;
  choice.kv_tokens = rollout.kv_tokens;
  choice.run = std::move(run);
  return choice;
}

std::vector<std::string> changes_between(const SimRun& own, const SimRun& plan) {
  std::vector<std::string> out;
  const auto number = [&](const char* name, int64_t a, int64_t b) {
    if (a != b) out.push_back(fmt::format("{} {} -> {}", name, a, b));
  };
  const auto text = [&](const char* name, const std::string& a, const std::string& b) {
    if (a != b) {
      out.push_back(fmt::format("{} {} -> {}", name, a.empty() ? "-" : a, b.empty() ? "-" : b));
    }
  };
  const auto a = train_layout(own), b = train_layout(plan);
  number("train.tp", a.tp, b.tp);
  number("train.pp", a.pp, b.pp);
  number("train.cp", a.cp, b.cp);
  number("train.ep", a.ep, b.ep);
  number("train.etp", a.etp, b.etp);
  number("train.dp", a.dp, b.dp);
  text("train.recompute", own.train.recompute, plan.train.recompute);
  text("train.optimizer", own.train.optimizer, plan.train.optimizer);
  const auto ra = rollout_layout(own), rb = rollout_layout(plan);
  number("rollout.tp", ra.tp, rb.tp);
  number("rollout.ep", ra.ep, rb.ep);
  number("rollout.dp", ra.dp, rb.dp);
  number("engine.max_num_seqs", own.engine.max_num_seqs, plan.engine.max_num_seqs);
  number("engine.graph_sizes", static_cast<int64_t>(own.engine.graph_sizes.size()),
         static_cast<int64_t>(plan.engine.graph_sizes.size()));
  text("engine.prompt_order", own.engine.prompt_order, plan.engine.prompt_order);
  text("engine.attention_split", own.engine.attention_split, plan.engine.attention_split);
  if (own.engine.rebalance != plan.engine.rebalance) {
    out.push_back(plan.engine.rebalance ? "engine.rebalance on" : "engine.rebalance off");
  }
  return out;
}

template <class T>
void keep_fastest(std::vector<T>& all, size_t count) {
  std::stable_sort(all.begin(), all.end(),
                   [](const T& a, const T& b) { return a.seconds < b.seconds; });
  if (all.size() > count) all.resize(count);
}

std::vector<TrainCandidate> search_train(const SimRun& run, const Catalog& catalog,
                                         const Calibration& calibration, PlanResult& result,
                                         size_t keep) {
  const auto& model = catalog.find_model(run.model);
  const auto& hardware = catalog.find_hardware(run.hardware);
  const Coefficients c(calibration, hardware.id, hardware.vendor, run.train.engine, "");
  const double budget =
      train_budget(run, hardware, engine_context_bytes(run, catalog, calibration));
  std::vector<TrainCandidate> all;
  double least = std::numeric_limits<double>::infinity();
  for (const auto& layout : train_layouts(run, model)) {
    ++result.num_layouts;
    auto candidates = fitting(run, layout, model, c, budget, &least);
    if (!candidates.empty()) ++result.num_fitting;
    std::move(candidates.begin(), candidates.end(), std::back_inserter(all));
  }
  KEEL_REQUIRE(!all.empty(),
               "[plan] expected a training layout within {:.1f} GiB of a device, got {:.1f} at "
               "least over {} layouts; try more devices than {}",
               budget / kGiB, least / kGiB, result.num_layouts, train_world(run));
  for (auto& candidate : all)
    candidate.seconds = train_seconds(candidate.run, catalog, calibration);
  keep_fastest(all, keep);
  return all;
}

std::vector<RolloutCandidate> search_rollout(const SimRun& run, const Catalog& catalog,
                                             const Calibration& calibration, PlanResult& result,
                                             size_t keep) {
  auto all = rollout_candidates(run, catalog.find_model(run.model), catalog, calibration);
  KEEL_REQUIRE(!all.empty(),
               "[plan] expected a rollout layout whose cache holds one sequence of {} tokens, got "
               "none on {} devices; try more devices or shorter responses",
               longest_sequence(run.workload), rollout_world(run));
  result.num_rollouts = static_cast<int64_t>(all.size());
  for (auto& candidate : all) {
    candidate.seconds = rollout_seconds(candidate.run, catalog, calibration);
  }
  keep_fastest(all, keep);
  return all;
}

SimRun combine(const SimRun& train, const SimRun& rollout) {
  SimRun run = train;
  run.rollout = rollout.rollout;
  run.engine = rollout.engine;
  return run;
}

}  // namespace

PlanResult plan_layouts(const PlanRequest& request, const Catalog& catalog,
                        const Calibration& calibration) {
  const bool has_own = request.run.train.tp > 0 && request.run.rollout.tp > 0;
  const SimRun run = with_defaults(request.run, catalog);
  check_request(run);
  PlanResult result;
  const auto keep = static_cast<size_t>(std::max<int64_t>(1, request.top));
  const auto trains = search_train(run, catalog, calibration, result, keep);
  const auto rollouts = search_rollout(run, catalog, calibration, result, keep);
  struct Pair {
    size_t train, rollout;
    double seconds;
  };
  std::vector<Pair> pairs;
  for (size_t t = 0; t < trains.size(); ++t) {
    for (size_t r = 0; r < rollouts.size(); ++r) {
      const double a = trains[t].seconds, b = rollouts[r].seconds;
      pairs.push_back({t, r, is_split(run) ? std::max(a, b) : a + b});
    }
  }
  keep_fastest(pairs, keep);
  for (const auto& pair : pairs) {
    result.best.push_back(
        evaluate_choice(combine(trains[pair.train].run, rollouts[pair.rollout].run), catalog,
                        calibration, request.num_seeds));
  }
  std::stable_sort(result.best.begin(), result.best.end(),
                   [](const auto& a, const auto& b) { return a.step_s < b.step_s; });
  if (has_own) {
    result.own = evaluate_choice(run, catalog, calibration, request.num_seeds);
    result.own_findings = check_plan(run, catalog, calibration);
    for (auto& choice : result.best) choice.changes = changes_between(run, choice.run);
  }
  return result;
}

}  // namespace keel::sim
