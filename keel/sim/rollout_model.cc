// Rollouts and decoding at a fixed batch.
//
// One decode step: layers * (layer_decode_s + batch * sequence_layer_s) + reading the rank's
// weights and the cache + host_step_s where garbage collection and unpinned threads hold it up;
// without a graph each layer costs eager_layer_s on top. Coefficients of the engine's stack.
#include <algorithm>
#include <cmath>
#include <optional>

#include "keel/base/error.h"
#include "keel/sim/numbers.h"
#include "keel/sim/plan_rules.h"
#include "keel/sim/predict.h"
#include "keel/sim/rollout_replay.h"
#include "keel/sim/train_passes.h"

namespace keel::sim {
namespace {

constexpr int64_t kDefaultSlots = 256;

struct Engine {
  const SimRun& run;
  const TwinModel& model;
  const HardwareSpec& hardware;
  const Coefficients& c;
  balance::Layout layout;
  double weight_bytes = 2, kv_bytes = 2;
  // Read once: a replay asks for many steps.
  double layer_s, sequence_s, weight_rate, kv_rate, host_s, prefill_rate;
};

Engine engine_of(const SimRun& run, const TwinModel& model, const HardwareSpec& hardware,
                 const Coefficients& c) {
  Engine e{run,
           model,
           hardware,
           c,
           rollout_layout(run),
           dtype_bytes(run.rollout_dtype),
           dtype_bytes(run.kv_dtype),
           0,
           0,
           0,
           0,
           0,
           0};
  if (model.is_moe() && run.rollout.ep == 0) e.layout.etp = e.layout.tp;
  e.layer_s = c("layer_decode_s");
  if (run.engine.graph_mode == "eager") e.layer_s += c("eager_layer_s");
  e.sequence_s = c("sequence_layer_s");
  e.weight_rate = hardware.memory_bytes_per_s * c("weight_read_efficiency");
  e.kv_rate = hardware.memory_bytes_per_s * c("decode_kv_efficiency");
  e.host_s = run.engine.gc_off && run.engine.cpu_pinned ? 0 : c("host_step_s");
  e.prefill_rate = hardware.peak(run.rollout_dtype.empty() ? "bf16" : run.rollout_dtype) *
                   c("prefill_efficiency") * e.layout.tp;
  return e;
}

double step_s(const Engine& e, const StepLoad& load) {
  const auto r = rank_params(e.model, e.layout);
  double weights = r.dense() - (e.model.tied_embeddings ? 0 : r.embedding_and_head / 2);
  if (e.model.is_moe()) {
    // Tokens of all ranks that share these experts choose among them.
    const double ranks = to_double(at_least_one(e.layout.ep)) / e.layout.tp;
    const double choices = load.batch * std::max(1.0, ranks) * to_double(e.model.topk);
    weights += r.experts * (1 - std::pow(1 - 1 / to_double(e.model.experts), choices));
  }
  const double layers = to_double(e.model.layers);
  return layers * (e.layer_s + load.batch * e.sequence_s) +
         weights * e.weight_bytes / e.weight_rate +
         load.kv_tokens * kv_bytes_per_token(e.model, e.layout.tp, e.kv_bytes) / e.kv_rate +
         e.host_s;
}

double prefill_s(const Engine& e, double tokens) {
  return (linear_flops(e.model, tokens) + attention_flops(e.model, std::min(tokens, 2048.0))) /
         e.prefill_rate;
}

// Lengths that die out as a published curve of live requests does.
std::vector<int64_t> lengths_of_curve(const std::vector<int64_t>& live, int64_t count,
                                      int64_t cap) {
  std::vector<int64_t> out;
  const double all = to_double(live.front());
  for (int64_t i = 0; i < count; ++i) {
    const double alive = all * (1 - (to_double(i) + 0.5) / to_double(count));
    size_t k = 0;
    while (k + 1 < live.size() && to_double(live[k + 1]) > alive) ++k;
    double t = to_double(static_cast<int64_t>(k)) * 1000;
    if (k + 1 < live.size()) {
      const double a = to_double(live[k]), b = to_double(live[k + 1]);
      t += a > b ? 1000 * (a - alive) / (a - b) : 0;
    }
    out.push_back(std::clamp<int64_t>(static_cast<int64_t>(t), 1, cap));
  }
  return out;
}

// [prompts * samples], prompt by prompt.
std::vector<int64_t> response_lengths(const SimRun& run, const Catalog& catalog, uint64_t seed) {
  const auto& w = run.workload;
  const int64_t samples = at_least_one(w.samples_per_prompt);
  const double prompt = w.prompt_len.mean.value_or(0.1 * to_double(w.prompt_len.max));
  const int64_t cap = at_least_one(w.response_len.max > 0 ? w.response_len.max : w.total_len.max);
  if (!w.live_requests_every_1000_steps.empty()) {
    return lengths_of_curve(w.live_requests_every_1000_steps, w.prompts * samples, cap);
  }
  double mean = w.response_len.mean.value_or(
      w.total_len.mean ? std::max(1.0, *w.total_len.mean - prompt) : assumed_response_mean(run));
  mean = std::clamp(mean, 1.0, to_double(cap));
  if (w.dataset == "fixed length" || run.engine.fixed_length) {
    return std::vector<int64_t>(static_cast<size_t>(w.prompts * samples),
                                static_cast<int64_t>(mean));
  }
  return draw_lengths(catalog.lengths, w.prompts, samples, mean, cap, seed);
}

std::vector<std::vector<int64_t>> deal(const SimRun& run, const std::vector<int64_t>& lengths,
                                       int64_t ranks) {
  std::vector<std::vector<int64_t>> queues(static_cast<size_t>(ranks));
  const auto count = static_cast<int64_t>(lengths.size());
  for (int64_t i = 0; i < count; ++i) {
    const int64_t rank = run.engine.prompt_order == "grouped" ? i * ranks / count : i % ranks;
    queues[static_cast<size_t>(rank)].push_back(lengths[static_cast<size_t>(i)]);
  }
  return queues;
}

ReplayResult replay_once(const SimRun& run, const Catalog& catalog, const Calibration& calibration,
                         const Engine& e, uint64_t seed) {
  const auto& w = run.workload;
  const int64_t ranks = at_least_one(e.layout.dp) * at_least_one(run.rollout.instances);
  ReplayTask task;
  task.queues = deal(run, response_lengths(run, catalog, seed), ranks);
  task.prompt_tokens = w.prompt_len.mean.value_or(0.1 * to_double(w.prompt_len.max));
  task.slots = run.engine.max_num_seqs > 0 ? run.engine.max_num_seqs : kDefaultSlots;
  task.graph_sizes = run.engine.graph_sizes;
  const auto longest = to_double(at_least_one(w.response_len.max) + w.prompt_len.max);
  task.kv_capacity_tokens = std::max<int64_t>(
      run_rollout_memory(run, catalog, calibration).kv_tokens, static_cast<int64_t>(longest));
  task.split_by_count = run.engine.attention_split == "by_count";
  task.cores = std::max<int64_t>(1, e.hardware.cores);
  task.rebalance = run.engine.rebalance && ranks > 1;
  task.step_s = [&e](const StepLoad& load) { return step_s(e, load); };
  task.prefill_s = [&e](double tokens) { return prefill_s(e, tokens); };
  const double token_bytes = kv_bytes_per_token(e.model, e.layout.tp, e.kv_bytes);
  const double link = e.hardware.levels.back().bytes_per_s;
  const double fixed = task.rebalance ? e.c("rebalance_s") : 0;
  task.move_s = [=](double tokens) { return fixed + tokens * token_bytes / link; };
  if (run.engine.lockstep_dp || ranks == 1) return replay_rollout(task);
  // Independent ranks: the last one decides.
  ReplayResult slowest;
  double first = -1;
  const auto queues = task.queues;
  task.rebalance = false;
  for (const auto& queue : queues) {
    task.queues = {queue};
    auto r = replay_rollout(task);
    first = first < 0 ? r.seconds : std::min(first, r.seconds);
    if (r.seconds > slowest.seconds) slowest = std::move(r);
  }
  slowest.first_idle_share = slowest.seconds > 0 ? 1 - first / slowest.seconds : 0;
  return slowest;
}

}  // namespace

std::vector<Prediction> predict_rollout(const SimRun& run, const Catalog& catalog,
                                        const Calibration& calibration,
                                        const PredictOptions& options) {
  const auto& hardware = catalog.find_hardware(run.hardware);
  const auto& model = catalog.find_model(run.model);
  KEEL_REQUIRE(run.workload.prompts > 0, "[{}:{} {} workload.prompts] expected at least 1, got 0",
               run.file, run.line, run.id);
  const Coefficients c(calibration, hardware.id, hardware.vendor, run.engine.name,
                       run.engine.version, options.used);
  const Engine e = engine_of(run, model, hardware, c);
  double sum = 0, idle = 0, low = 0, high = 0, decode = 0, prefill = 0, move = 0;
  const int64_t seeds = at_least_one(options.num_seeds);
  for (int64_t i = 0; i < seeds; ++i) {
    const auto r =
        replay_once(run, catalog, calibration, e, options.seed + static_cast<uint64_t>(i));
    sum += r.seconds;
    idle += r.first_idle_share;
    decode += r.decode_s;
    prefill += r.prefill_s;
    move += r.move_s;
    low = i == 0 ? r.seconds : std::min(low, r.seconds);
    high = std::max(high, r.seconds);
  }
  const double n = to_double(seeds),
               batches = to_double(at_least_one(run.workload.generation_batches));
  std::vector<Prediction> out;
  for (const auto& [target, times] :
       {std::pair<const char*, double>{"rollout_s", batches}, {"rollout_batch_s", 1}}) {
    out.push_back({target,
                   times * sum / n,
                   times * (high - low),
                   {{"decode", times * decode / n},
                    {"prefill", times * prefill / n},
                    {"rebalance", times * move / n}}});
  }
  for (const auto& target : run.targets) {
    if (target == "first_dp_idle_share") out.push_back({target, std::max(1e-6, idle / n), 0, {}});
  }
  return out;
}

std::vector<Prediction> predict_tpot(const SimRun& run, const Catalog& catalog,
                                     const Calibration& calibration,
                                     const PredictOptions& options) {
  const auto& hardware = catalog.find_hardware(run.hardware);
  const auto& model = catalog.find_model(run.model);
  const Coefficients c(calibration, hardware.id, hardware.vendor, run.engine.name,
                       run.engine.version, options.used);
  const Engine e = engine_of(run, model, hardware, c);
  const auto& w = run.workload;
  const double batch = to_double(std::max({int64_t{1}, w.live_per_dp, w.concurrency}));
  const double context = w.input_len + w.output_len > 0
                             ? to_double(w.input_len) + to_double(w.output_len) / 2
                             : to_double(w.response_len.max) / 2;
  // A prompt that arrives interrupts the others: each token carries its share of the prefills.
  const double prefill = w.output_len > 0 ? (batch - 1) * prefill_s(e, to_double(w.input_len)) /
                                                to_double(w.output_len)
                                          : 0;
  std::vector<Prediction> out;
  for (const auto& target : run.targets) {
    if (target == "tpot_ms" || target == "tpot_ms_buckets") {
      const double s = step_s(e, {batch, batch * context}) + prefill;
      out.push_back({target, 1e3 * s, 0, {}});
    } else if (target == "tpot_ms_static64") {
      const double s = step_s(e, {64, batch * context}) + prefill;
      out.push_back({target, 1e3 * s, 0, {}});
    } else if (target == "tpot_ms_suffix" && run.accept_rate) {
      // Accepted tokens come for free; verifying drafts widens the batch.
      const double tokens = 1 + c("draft_tokens") * *run.accept_rate;
      const double s =
          step_s(e, {batch * (1 + c("draft_row_share") * c("draft_tokens")), batch * context}) +
          prefill;
      out.push_back({target, 1e3 * s / tokens, 0, {}});
    }
  }
  return out;
}

}  // namespace keel::sim
