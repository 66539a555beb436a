// Bindings: NumPy arrays in, dictionaries of NumPy arrays out. Errors of the planners' input become
// ValueError with their message. Contracts are in the headers of keel/balance.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>

#include "keel/balance/attention_partition.h"
#include "keel/balance/context_parallel.h"
#include "keel/balance/eplb.h"
#include "keel/balance/expert_placement.h"
#include "keel/balance/interleave.h"
#include "keel/balance/layout.h"
#include "keel/balance/lockstep_batches.h"
#include "keel/balance/pipeline_split.h"
#include "keel/balance/rollout_policy.h"
#include "keel/balance/rollout_rebalance.h"
#include "keel/balance/sequence_balance.h"
#include "keel/base/error.h"

namespace py = pybind11;

namespace keel::balance {
namespace {

template <class T>
using Array = py::array_t<T, py::array::c_style | py::array::forcecast>;

template <class T>
std::span<const T> one_dim(const Array<T>& a, const char* name) {
  KEEL_REQUIRE(a.ndim() == 1, "[{}] expected one dimension, got {}", name, a.ndim());
  return {a.data(), static_cast<size_t>(a.size())};
}

template <class T>
py::array_t<T> array(const std::vector<T>& v) {
  return py::array_t<T>(static_cast<py::ssize_t>(v.size()), v.data());
}

template <class T>
py::list arrays(const std::vector<std::vector<T>>& vs) {
  py::list out;
  for (const auto& v : vs) out.append(array(v));
  return out;
}

py::dict sequences(const Array<int64_t>& lengths, int32_t ranks, int64_t linear, int64_t quadratic,
                   bool equal, int64_t cap_tokens) {
  SequenceBalanceOptions options;
  options.mode = equal ? CountMode::kEqual : CountMode::kFree;
  options.cap_tokens = cap_tokens;
  const auto plan =
      balance_sequences(one_dim(lengths, "lengths"), ranks, {linear, quadratic}, options);
  py::dict out;
  out["ranks"] = arrays(plan.ranks);
  out["costs"] = array(plan.costs);
  out["lower_bound"] = plan.lower_bound;
  out["within_cap"] = plan.within_cap;
  return out;
}

py::dict micro_batches(const Array<int64_t>& lengths, int64_t cap_tokens, int32_t ranks,
                       int64_t linear, int64_t quadratic) {
  LockstepTask task;
  task.cap_tokens = cap_tokens;
  task.num_ranks = ranks;
  task.cost = {linear, quadratic};
  const auto plan = plan_lockstep_batches(one_dim(lengths, "lengths"), task);
  py::list by_rank;
  for (const auto& rank : plan.ranks) by_rank.append(arrays(rank));
  py::dict out;
  out["ranks"] = by_rank;
  out["oversized"] = array(plan.oversized);
  out["lower_bound"] = plan.lower_bound;
  out["cost"] = plan.lockstep_cost;
  return out;
}

py::dict context_groups(const Array<int64_t>& lengths, int32_t ranks, int64_t capacity_tokens,
                        int64_t linear, int64_t quadratic, double ring_latency,
                        double ring_per_token, double a2a_latency, double a2a_per_token,
                        int32_t max_ulysses) {
  HdpTask task;
  task.num_ranks = ranks;
  task.capacity_tokens = capacity_tokens;
  task.cost = {{linear, quadratic}, ring_latency,  ring_per_token,
               a2a_latency,         a2a_per_token, max_ulysses};
  const auto plan = plan_context_groups(one_dim(lengths, "lengths"), task);
  py::list steps;
  for (const auto& s : plan.steps) {
    py::dict step;
    step["ranks"] = array(s.ranks);
    step["sequences"] = array(s.sequences);
    step["ulysses"] = s.ulysses;
    steps.append(step);
  }
  py::dict out;
  out["steps"] = steps;
  out["makespan"] = plan.makespan;
  out["lower_bound"] = plan.lower_bound;
  out["num_groups"] = plan.num_groups;
  return out;
}

// [layers, n] or [n]; row() gives one layer.
template <class T>
class Layers {
 public:
  Layers(const Array<T>& a, const char* name) : a_(a) {
    KEEL_REQUIRE(a.ndim() == 1 || a.ndim() == 2, "[{}] expected one or two dimensions, got {}",
                 name, a.ndim());
  }
  bool many() const { return a_.ndim() == 2; }
  py::ssize_t count() const { return many() ? a_.shape(0) : 1; }
  py::ssize_t width() const { return a_.shape(a_.ndim() - 1); }
  std::span<const T> row(py::ssize_t k) const {
    return {a_.data() + k * width(), static_cast<size_t>(width())};
  }

 private:
  const Array<T>& a_;
};

// plan(layer) for each layer -> (expert_of [layers, replicas], count [layers, experts]).
template <class T, class F>
py::tuple place_layers(const Layers<T>& loads, int32_t replicas, const F& plan) {
  const auto shape = [&](py::ssize_t n) {
    return loads.many() ? std::vector<py::ssize_t>{loads.count(), n} : std::vector<py::ssize_t>{n};
  };
  py::array_t<int32_t> expert_of(shape(replicas)), count(shape(loads.width()));
  for (py::ssize_t k = 0; k < loads.count(); ++k) {
    const ExpertPlacement p = plan(k);
    std::copy(p.expert_of.begin(), p.expert_of.end(), expert_of.mutable_data() + k * replicas);
    std::copy(p.count.begin(), p.count.end(), count.mutable_data() + k * loads.width());
  }
  return py::make_tuple(expert_of, count);
}

py::tuple experts(const Array<double>& loads, int32_t replicas, int32_t gpus) {
  const Layers<double> layers(loads, "loads");
  const ExpertLayout layout{static_cast<int32_t>(layers.width()), replicas, gpus};
  return place_layers(layers, replicas,
                      [&](py::ssize_t k) { return place_experts(layers.row(k), layout); });
}

py::tuple follow(const Array<double>& loads, const Array<int32_t>& expert_of, int32_t gpus,
                 int32_t max_moved) {
  const Layers<double> layers(loads, "loads");
  const Layers<int32_t> now(expert_of, "expert_of");
  KEEL_REQUIRE(now.many() == layers.many() && now.count() == layers.count(),
               "[expert_of] expected {} layers as in loads, got {}", layers.count(), now.count());
  const auto replicas = static_cast<int32_t>(now.width());
  const ExpertLayout layout{static_cast<int32_t>(layers.width()), replicas, gpus};
  return place_layers(layers, replicas, [&](py::ssize_t k) {
    ExpertPlacement current;
    current.expert_of.assign(now.row(k).begin(), now.row(k).end());
    current.count.assign(layout.num_experts, 0);
    for (const int32_t e : current.expert_of) {
      KEEL_REQUIRE(e >= 0 && e < layout.num_experts, "[expert_of] expected 0 to {}, got {}",
                   layout.num_experts - 1, e);
      ++current.count[e];
    }
    return follow_load(layers.row(k), layout, current, max_moved);
  });
}

py::tuple published_eplb(const Array<int64_t>& loads, int32_t replicas, int32_t groups,
                         int32_t nodes, int32_t gpus) {
  const Layers<int64_t> layers(loads, "loads");
  const EplbTask task{{static_cast<int32_t>(layers.width()), replicas, gpus}, groups, nodes};
  return place_layers(layers, replicas, [&](py::ssize_t k) { return eplb(layers.row(k), task); });
}

py::dict attention(const Array<int64_t>& query_tokens, const Array<int64_t>& kv_tokens,
                   int32_t cores, int32_t heads_per_kv, int32_t kv_heads, int32_t row_tile,
                   int32_t kv_tile, int64_t split_tokens) {
  const auto q = one_dim(query_tokens, "query_tokens");
  const auto kv = one_dim(kv_tokens, "kv_tokens");
  KEEL_REQUIRE(q.size() == kv.size(), "[kv_tokens] expected {} as query_tokens, got {}", q.size(),
               kv.size());
  std::vector<AttentionRequest> requests;
  for (size_t i = 0; i < q.size(); ++i) requests.push_back({q[i], kv[i]});
  AttentionOptions options;
  options.split_tokens = split_tokens;
  const auto plan =
      plan_attention(requests, {heads_per_kv, kv_heads, row_tile, kv_tile}, cores, {}, options);
  py::list runs;
  for (const auto& core : plan.cores) {
    py::array_t<int64_t> rows({static_cast<py::ssize_t>(core.size()), py::ssize_t{5}});
    int64_t* at = rows.mutable_data();
    for (const auto& r : core) {
      for (const int64_t x :
           {int64_t{r.request}, int64_t{r.kv_head}, int64_t{r.row}, r.kv_begin, r.kv_end}) {
        *at++ = x;
      }
    }
    runs.append(rows);
  }
  py::dict out;
  out["cores"] = runs;
  out["loads"] = array(plan.loads);
  out["num_partials"] = plan.num_partials;
  out["lower_bound"] = plan.lower_bound;
  return out;
}

py::array_t<int32_t> rebalance(const Array<int32_t>& running, const Array<int32_t>& waiting,
                               const Array<double>& block_usage, std::vector<int32_t> buckets,
                               int32_t max_running) {
  const auto r = one_dim(running, "running"), w = one_dim(waiting, "waiting");
  const auto usage = one_dim(block_usage, "block_usage");
  KEEL_REQUIRE(r.size() == w.size() && r.size() == usage.size(),
               "[running] expected as many as waiting and block_usage, got {}, {}, {}", r.size(),
               w.size(), usage.size());
  std::vector<RolloutRankState> ranks;
  for (size_t i = 0; i < r.size(); ++i) ranks.push_back({r[i], w[i], usage[i]});
  const auto tasks = published_rebalance(ranks, {std::move(buckets), max_running});
  py::array_t<int32_t> out({static_cast<py::ssize_t>(tasks.size()), py::ssize_t{4}});
  int32_t* at = out.mutable_data();
  for (const auto& t : tasks) {
    for (const int32_t x : {t.from_rank, t.to_rank, t.count, int32_t{t.needs_kv}}) *at++ = x;
  }
  return out;
}

py::dict rollout_plan(RolloutPolicy& policy, const Array<int32_t>& group,
                      const Array<int32_t>& prompt_tokens, const Array<int32_t>& generated,
                      const Array<int32_t>& rank, const Array<bool>& active,
                      const Array<bool>& done) {
  const auto g = one_dim(group, "group"), p = one_dim(prompt_tokens, "prompt_tokens");
  const auto t = one_dim(generated, "generated"), r = one_dim(rank, "rank");
  const auto a = one_dim(active, "active"), d = one_dim(done, "done");
  for (const size_t n : {p.size(), t.size(), r.size(), a.size(), d.size()}) {
    KEEL_REQUIRE(n == g.size(), "[group] expected arrays of {} requests, got one of {}", g.size(),
                 n);
  }
  std::vector<RolloutRequest> requests;
  for (size_t i = 0; i < g.size(); ++i) requests.push_back({g[i], p[i], t[i], r[i], a[i], d[i]});
  const auto& plan = policy.plan(requests);
  py::dict out;
  out["rank"] = array(plan.rank);
  out["active"] = py::array_t<bool>(array(plan.active));
  out["order"] = array(plan.order);
  out["batch"] = array(plan.batch);
  return out;
}

RolloutPolicy rollout_policy(int32_t ranks, int32_t max_running, std::vector<int32_t> buckets,
                             std::vector<double> step_ms, int64_t kv_capacity_tokens,
                             int32_t max_new_tokens, int32_t max_moves, int64_t max_move_tokens) {
  return RolloutPolicy({ranks, max_running, std::move(buckets), std::move(step_ms),
                        kv_capacity_tokens, max_new_tokens, max_moves, max_move_tokens});
}

py::dict interleaved(int32_t prompts, int32_t samples, int32_t ranks) {
  const auto plan = interleave(prompts, samples, ranks);
  py::dict out;
  out["order"] = array(plan.order);
  out["restore"] = array(plan.restore);
  out["rank_begin"] = array(plan.rank_begin);
  return out;
}

py::dict pipeline(const Array<int64_t>& time, int32_t stages, int32_t num_micro_batches,
                  int64_t embedding_time, int64_t head_time) {
  PipelineTask task;
  for (const int64_t t : one_dim(time, "time")) task.layers.push_back({t, 0, 0});
  task.embedding.time = embedding_time;
  task.head.time = head_time;
  task.num_stages = stages;
  task.num_micro_batches = num_micro_batches;
  const auto plan = split_pipeline(task);
  py::dict out;
  out["layer_begin"] = array(plan.layer_begin);
  out["stage_time"] = array(plan.stage_time);
  out["bubble"] = plan.bubble;
  return out;
}

std::vector<std::string> faults(int32_t layers, int32_t heads, int32_t kv_heads,
                                int32_t intermediate, int32_t world_size, int32_t tp, int32_t pp,
                                int32_t cp, int32_t ep, int32_t etp, int32_t dp,
                                int32_t num_experts, int32_t moe_intermediate) {
  const LayoutModel model{layers, heads, kv_heads, intermediate, num_experts, moe_intermediate};
  Layout layout;
  layout.tp = tp;
  layout.pp = pp;
  layout.cp = cp;
  layout.ep = ep;
  layout.etp = etp;
  layout.dp = dp;
  return layout_faults(model, layout, world_size);
}

}  // namespace
}  // namespace keel::balance

PYBIND11_MODULE(keel_planners, m) {
  namespace kb = keel::balance;
  using namespace py::literals;
  m.doc() = "Planners of Keel: lengths and loads in, plans out. Deterministic.";
  py::register_exception_translator([](std::exception_ptr p) {
    try {
      if (p) std::rethrow_exception(p);
    } catch (const keel::Error& e) {
      PyErr_SetString(PyExc_ValueError, e.what());
    }
  });
  m.def("balance_sequences", kb::sequences, "lengths"_a, "ranks"_a, py::kw_only(), "linear"_a = 1,
        "quadratic"_a = 0, "equal"_a = false, "cap_tokens"_a = 0,
        "Sequences to ranks so that the dearest rank is cheapest.");
  m.def("micro_batches", kb::micro_batches, "lengths"_a, "cap_tokens"_a, "ranks"_a = 1,
        py::kw_only(), "linear"_a = 1, "quadratic"_a = 0,
        "Fewest micro-batches under a token cap, as many on every rank.");
  m.def("context_groups", kb::context_groups, "lengths"_a, "ranks"_a, "capacity_tokens"_a,
        py::kw_only(), "linear"_a = 1, "quadratic"_a = 0, "ring_latency"_a = 0.0,
        "ring_per_token"_a = 0.0, "a2a_latency"_a = 0.0, "a2a_per_token"_a = 0.0,
        "max_ulysses"_a = 1, "Sequences to context-parallel groups of any size.");
  m.def("place_experts", kb::experts, "loads"_a, "replicas"_a, "gpus"_a,
        "(expert_of, count) for loads [experts] or [layers, experts].");
  m.def("follow_load", kb::follow, "loads"_a, "expert_of"_a, "gpus"_a, "max_moved"_a,
        "A better placement that moves at most max_moved replicas of each layer.");
  m.def("eplb", kb::published_eplb, "loads"_a, "replicas"_a, "groups"_a, "nodes"_a, "gpus"_a,
        "The published EPLB algorithm, to compare with.");
  m.def("plan_attention", kb::attention, "query_tokens"_a, "kv_tokens"_a, "cores"_a, py::kw_only(),
        "heads_per_kv"_a = 1, "kv_heads"_a = 1, "row_tile"_a = 16, "kv_tile"_a = 512,
        "split_tokens"_a = 128,
        "Attention blocks to cores; rows of `cores` are (request, kv head, row tile, kv begin, "
        "kv end).");
  m.def("rebalance_rollout", kb::rebalance, "running"_a, "waiting"_a, "block_usage"_a, "buckets"_a,
        "max_running"_a, "The published rebalance: rows (from, to, count, needs KV).");
  m.def("interleave", kb::interleaved, "prompts"_a, "samples"_a, "ranks"_a,
        "Order in which samples of all prompts take turns, and its inverse.");
  m.def("split_pipeline", kb::pipeline, "time"_a, "stages"_a, "micro_batches"_a, py::kw_only(),
        "embedding_time"_a = 0, "head_time"_a = 0, "Layers to pipeline stages.");
  m.def("layout_faults", kb::faults, "layers"_a, "heads"_a, "kv_heads"_a, "intermediate"_a,
        "world_size"_a, py::kw_only(), "tp"_a = 1, "pp"_a = 1, "cp"_a = 1, "ep"_a = 1, "etp"_a = 1,
        "dp"_a = 1, "num_experts"_a = 0, "moe_intermediate"_a = 0,
        "What is wrong with a parallel layout; empty if it is legal.");
  py::class_<kb::RolloutPolicy>(m, "RolloutPolicy",
                                "Which request of a rollout runs on which rank now.")
      .def(py::init(&kb::rollout_policy), "ranks"_a, "max_running"_a, "buckets"_a, "step_ms"_a,
           "kv_capacity_tokens"_a, "max_new_tokens"_a, "max_moves"_a = 64,
           "max_move_tokens"_a = 1'000'000)
      .def("plan", kb::rollout_plan, "group"_a, "prompt_tokens"_a, "generated"_a, "rank"_a,
           "active"_a, "done"_a);
}
