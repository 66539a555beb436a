#include "keel/sim/plan_rules.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "keel/base/error.h"
#include "keel/sim/hardware.h"
#include "keel/sim/numbers.h"

namespace keel::sim {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr int64_t kDefaultBatchedTokens = 8192;
constexpr double kDefaultFraction = 0.9;

// Bytes of one slot's cache: the larger of the survivors' peak and, where a queue refills slots,
// the mean over a sequence's life.
double slot_tokens(const std::vector<int64_t>& lengths, double prompt, bool refilled) {
  auto sorted = lengths;
  std::sort(sorted.begin(), sorted.end());
  const double n = to_double(static_cast<int64_t>(sorted.size()));
  double peak = 0, sum = 0, squares = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const double t = to_double(sorted[i]);
    const double alive = (n - to_double(static_cast<int64_t>(i))) / n;
    peak = std::max(peak, alive * (prompt + t));
    sum += t;
    squares += t * t;
  }
  return refilled && sum > 0 ? std::max(peak, prompt + squares / (2 * sum)) : peak;
}

std::vector<int64_t> sample_lengths(const SimRun& run, const LengthModel& model) {
  const auto& w = run.workload;
  const int64_t cap = at_least_one(w.response_len.max);
  const double mean = std::min(w.response_len.mean.value_or(0.25 * to_double(cap)), to_double(cap));
  return draw_lengths(model, 512, 4, std::max(1.0, mean), cap, 1);
}

class Rules {
 public:
  Rules(const SimRun& run, const Catalog& catalog, const Calibration& calibration)
      : run_(run),
        catalog_(catalog),
        calibration_(calibration),
        model_(catalog.find_model(run.model)),
        hardware_(catalog.find_hardware(run.hardware)),
        coefficients_(calibration, hardware_.id, hardware_.vendor, run.train.engine, "") {}

  std::vector<PlanFinding> findings() {
    devices();
    if (has_train()) {
      train_layout_rules();
      pipeline();
      train_memory_rules();
      batch_identity();
    }
    if (has_rollout()) {
      rollout_layout_rules();
      rollout_memory_rules();
      budgets();
      graphs();
      waste();
    }
    return std::move(out_);
  }

 private:
  template <class... Args>
  void add(bool error, const char* rule, const std::string& field, fmt::format_string<Args...> f,
           Args&&... args) {
    std::string where = run_.file.empty() ? "" : fmt::format("{}:{} ", run_.file, run_.line);
    if (!run_.id.empty()) where += run_.id + " ";
    out_.push_back(
        {error, rule, field,
         fmt::format("[{}{}] {}", where, field, fmt::format(f, std::forward<Args>(args)...))});
  }

  bool has_train() const { return run_.train.devices > 0 || run_.train.tp > 0; }
  bool has_rollout() const { return run_.rollout.devices > 0 || run_.rollout.tp > 0; }
  bool split() const { return run_.placement.starts_with("split"); }
  int64_t train_devices() const {
    return run_.train.devices > 0 ? run_.train.devices : run_.devices;
  }
  int64_t rollout_devices() const {
    return run_.rollout.devices > 0 ? run_.rollout.devices : run_.devices;
  }
  int64_t node() const { return run_.devices_per_node > 0 ? run_.devices_per_node : 8; }

  void devices() {
    const int64_t used = split() ? train_devices() + rollout_devices()
                                 : std::max(has_train() ? train_devices() : 0,
                                            has_rollout() ? rollout_devices() : 0);
    if (used > run_.devices) {
      add(true, "world_size", "hardware.devices",
          "expected at least the {} devices of the layouts, got {}; try fewer or add devices", used,
          run_.devices);
    } else if (used > 0 && used < run_.devices) {
      add(false, "world_size", "hardware.devices",
          "expected the layouts to use all {} devices, got {}; try a wider dp", run_.devices, used);
    }
    for (const auto* dtype : {&run_.train_dtype, &run_.rollout_dtype}) {
      if (dtype_bytes(*dtype) < 2 && !hardware_.peak_flops.contains(*dtype)) {
        add(false, "dtype", "precision", "expected a dtype that {} computes in, got {}; try bf16",
            hardware_.id, *dtype);
      }
    }
  }

  void layout(const balance::Layout& l, int64_t world, const char* side) {
    for (const auto& fault :
         balance::layout_faults(layout_model(model_), l, static_cast<int32_t>(world))) {
      const auto end = fault.find("] ");
      auto field = fault.substr(1, end - 1);  // layout.tp
      field.insert(std::string("layout").size(), std::string(".") + side);
      add(true, "world_size", field, "{}", fault.substr(end + 2));
    }
    if (l.tp > node()) {
      add(false, "tp_over_nodes", fmt::format("layout.{}.tp", side),
          "expected tp within a node of {} devices, got {}; every layer's all-reduce then crosses "
          "the slow link; try {}",
          node(), l.tp, node());
    }
  }

  void train_layout_rules() { layout(train_layout(run_), train_devices(), "train"); }

  void rollout_layout_rules() {
    auto l = rollout_layout(run_);
    // Engines that spread experts over all ranks give ep; tensor-parallel experts otherwise.
    if (model_.is_moe() && run_.rollout.ep == 0) l.etp = l.tp;
    layout(l, rollout_devices() / at_least_one(run_.rollout.instances), "rollout");
  }

  void pipeline() {
    const auto& t = run_.train;
    const int64_t pp = at_least_one(t.pp);
    const auto sum = std::accumulate(t.pp_layers.begin(), t.pp_layers.end(), int64_t{0});
    if (!t.pp_layers.empty() && sum != model_.layers) {
      add(true, "pipeline_layers", "layout.train.pp_layers",
          "expected layers that sum to {}, got {}; try other counts", model_.layers, sum);
    }
    if (t.vp > 1 && (model_.layers % (pp * t.vp) != 0)) {
      add(false, "pipeline_layers", "layout.train.vp",
          "expected pp * vp that divides {} layers, got {} * {}; the largest chunk decides",
          model_.layers, pp, t.vp);
    }
    const int64_t micro = micro_batches();
    if (micro <= 0 || pp == 1) return;
    if (t.vp > 1 && micro % pp != 0) {
      add(true, "pipeline_micro_batches", "layout.train.vp",
          "expected micro-batches that pp = {} divides with interleaved stages, got {}", pp, micro);
    }
    const double bubble = to_double(pp - 1) / to_double(at_least_one(t.vp) * micro + pp - 1);
    if (bubble > 0.25) {
      add(false, "pipeline_bubble", "layout.train.pp",
          "expected micro-batches well above pp - 1, got {} on {} stages: {:.0f} % of device time "
          "waits; try fewer stages or smaller micro-batches",
          micro, pp, 100 * bubble);
    }
  }

  // Micro-batches of one update on a data-parallel rank; 0 if nothing states them.
  int64_t micro_batches() const {
    const auto& w = run_.workload;
    const int64_t dp = train_layout(run_).dp;
    if (w.micro_batches > 0) return w.micro_batches;
    if (w.global_batch > 0) return w.global_batch / (at_least_one(w.micro_batch) * dp);
    if (w.prompts == 0) return 0;
    return sequences_per_update() / dp;
  }

  int64_t sequences_per_update() const {
    const auto& w = run_.workload;
    const int64_t prompts = w.train_prompts > 0 ? w.train_prompts : w.prompts;
    const int64_t updates = w.minibatch_prompts > 0 ? at_least_one(prompts / w.minibatch_prompts)
                                                    : std::max(at_least_one(w.mini_updates),
                                                               at_least_one(w.minibatches));
    return prompts * at_least_one(w.samples_per_prompt) / updates;
  }

  void train_memory_rules() {
    auto settings = train_memory_settings(run_);
    if (settings.micro_batch_tokens <= 0) {
      settings.micro_batch_tokens = to_double(longest_sequence(run_.workload));
    }
    if (settings.micro_batch_tokens <= 0) return;
    const auto stages = train_memory(model_, settings, coefficients_);
    const auto& peak = largest_stage(stages);
    const double share = peak.total() / hardware_.memory_bytes;
    if (share > 1) {
      const auto biggest =
          std::max_element(peak.parts.begin(), peak.parts.end(),
                           [](const auto& a, const auto& b) { return a.second < b.second; });
      add(true, "train_memory", "layout.train",
          "expected at most {:.1f} GiB on a device, got {:.1f} on stage {} ({} alone {:.1f}); try "
          "{}",
          hardware_.memory_bytes / kGiB, peak.total() / kGiB, peak.stage, biggest->first,
          biggest->second / kGiB, remedy(biggest->first));
    } else if (share > 0.95) {
      add(false, "train_memory", "layout.train",
          "expected some room for fragmentation, got {:.0f} % of the device's memory", 100 * share);
    }
  }

  static const char* remedy(const std::string& part) {
    if (part == "optimizer") return "optimizer: swap_to_host, or a wider dp to share it";
    if (part == "activations") return "more cp or recompute: full";
    if (part == "layer_peak") return "more cp, or a smaller micro-batch";
    if (part == "logits") return "a fused or chunked loss, or more cp";
    if (part == "workspace") return "a device with more memory";
    return "more tp, pp or ep, or ZeRO-3";
  }

  void batch_identity() {
    const auto& w = run_.workload;
    const int64_t dp = train_layout(run_).dp;
    if (w.global_batch > 0) {
      const int64_t micro = at_least_one(w.micro_batch);
      const double steps = to_double(w.global_batch) / to_double(micro * dp);
      if (w.global_batch % (micro * dp) != 0) {
        add(true, "batch_identity", "workload.global_batch",
            "expected micro_batch * accumulation * dp = {} * n * {}, got {} (n = {:g}); try {}",
            micro, dp, w.global_batch, steps,
            (w.global_batch + micro * dp - 1) / (micro * dp) * micro * dp);
      }
    }
    if (w.prompts > 0 && w.minibatch_prompts > 0 && w.prompts % w.minibatch_prompts != 0) {
      add(true, "batch_identity", "workload.minibatch_prompts",
          "expected a divisor of the {} prompts of a step, got {}", w.prompts, w.minibatch_prompts);
    }
    if (w.prompts > 0 && sequences_per_update() < dp) {
      add(true, "batch_identity", "layout.train.dp",
          "expected at most the {} sequences of an update, got {} data ranks; try dp = {}",
          sequences_per_update(), dp, at_least_one(sequences_per_update()));
    }
  }

  void rollout_memory_rules() {
    const auto memory = run_rollout_memory(run_, catalog_, calibration_);
    const double limit = fraction() * hardware_.memory_bytes;
    if (memory.kv_bytes <= 0) {
      add(true, "rollout_memory", "layout.rollout",
          "expected weights and a prefill within {:.1f} GiB ({:.0f} % of the device), got {:.1f} "
          "and {:.1f}; try more tp or ep{}",
          limit / kGiB, 100 * fraction(), memory.use.part("weights") / kGiB,
          memory.use.part("activations") / kGiB,
          model_.is_moe() ? ", or engine.chunk_moe: 512" : "");
      return;
    }
    const int64_t longest = longest_sequence(run_.workload);
    if (longest > memory.kv_tokens) {
      add(true, "kv_capacity", "workload.response_len.max",
          "expected room for one sequence of {} tokens, got a cache of {}; try more tp", longest,
          memory.kv_tokens);
      return;
    }
    const int64_t slots = run_.engine.max_num_seqs;
    if (slots == 0 || run_.workload.response_len.max == 0 || run_.workload.prompts == 0) return;
    const int64_t fit = slots_that_fit(run_, catalog_.lengths, memory.kv_tokens);
    const int64_t used = std::min(slots, samples_per_rank());
    if (used > fit) {
      add(false, "kv_survivors", "engine.max_num_seqs",
          "expected survivors(t) * (prompt + t) within the {} tokens of cache for all t, got {} "
          "slots: the engine will preempt and compute again; try {}",
          memory.kv_tokens, used, fit);
    }
  }

  double fraction() const {
    return run_.engine.memory_fraction > 0 ? run_.engine.memory_fraction : kDefaultFraction;
  }

  int64_t samples_per_rank() const {
    const auto& w = run_.workload;
    const int64_t all = w.prompts * at_least_one(w.samples_per_prompt);
    return at_least_one(all / rollout_layout(run_).dp);
  }

  void budgets() {
    const auto& e = run_.engine;
    if (e.max_batched_tokens > 0 && e.max_batched_tokens < e.max_num_seqs) {
      add(true, "token_budget", "engine.max_batched_tokens",
          "expected at least the {} tokens that all slots decode in a step, got {}; try {}",
          e.max_num_seqs, e.max_batched_tokens, 4 * e.max_num_seqs);
    }
    const int64_t prompt = run_.workload.prompt_len.max;
    if (e.max_batched_tokens > 0 && prompt > e.max_batched_tokens) {
      add(false, "token_budget", "engine.max_batched_tokens",
          "expected at least the longest prompt of {} tokens, got {}: its prefill takes several "
          "steps",
          prompt, e.max_batched_tokens);
    }
    if (e.max_num_seqs > 0 && run_.workload.prompts > 0 &&
        e.max_num_seqs >= 2 * samples_per_rank() && e.graph_sizes.size() == 1) {
      add(false, "idle_slots", "engine.max_num_seqs",
          "expected at most the {} samples of a rank with one graph size, got {}: every step pays "
          "for all slots; try smaller graph_sizes",
          samples_per_rank(), e.max_num_seqs);
    }
    if (!split() && fraction() > 0.95 && has_train()) {
      add(false, "memory_fraction", "engine.memory_fraction",
          "expected room for the training side on a shared device, got {:g}; try 0.85", fraction());
    }
  }

  void graphs() {
    const auto& e = run_.engine;
    if (e.graph_sizes.empty() || e.max_num_seqs == 0) return;
    const int64_t largest = *std::max_element(e.graph_sizes.begin(), e.graph_sizes.end());
    if (largest < e.max_num_seqs) {
      add(false, "graph_sizes", "engine.graph_sizes",
          "expected a size of at least max_num_seqs = {}, got {} at most: larger batches run "
          "without a graph; try adding {}",
          e.max_num_seqs, largest, e.max_num_seqs);
    }
    if (e.graph_sizes.size() == 1 && e.max_num_seqs >= 32) {
      add(false, "graph_sizes", "engine.graph_sizes",
          "expected several sizes, got one: the tail of a rollout pays for {} slots until its last "
          "sequence; try sizes that halve",
          largest);
    }
    const int64_t tp = at_least_one(run_.rollout.tp);
    for (const int64_t size : e.graph_sizes) {
      if (run_.rollout.ep > 1 && size % tp != 0) {
        add(false, "graph_sizes", "engine.graph_sizes",
            "expected multiples of tp = {} with expert parallelism, got {}: it is rounded up", tp,
            size);
      }
    }
  }

  void waste() {
    const auto& e = run_.engine;
    if (run_.workload.prompts == 0 || rollout_layout(run_).dp == 1) return;
    if (e.prompt_order == "grouped") {
      add(false, "prompt_order", "engine.prompt_order",
          "expected interleaved prompts, got grouped: samples of a prompt have like lengths, so "
          "ranks with long prompts finish last; try interleaved");
    }
    if (e.attention_split == "by_count") {
      add(false, "attention_split", "engine.attention_split",
          "expected attention split by length, got by_count: a core with long sequences decides; "
          "try balanced");
    }
  }

  const SimRun& run_;
  const Catalog& catalog_;
  const Calibration& calibration_;
  const TwinModel& model_;
  const HardwareSpec& hardware_;
  Coefficients coefficients_;
  std::vector<PlanFinding> out_;
};

}  // namespace

int64_t longest_sequence(const Workload& w) {
  if (w.total_len.max > 0) return w.total_len.max;
  if (w.response_len.max > 0) return w.prompt_len.max + w.response_len.max;
  return std::max({w.seq_len, w.seq_len_stats.max, w.input_len + w.output_len});
}

double engine_context_bytes(const SimRun& run, const Catalog& catalog,
                            const Calibration& calibration) {
  const auto& hardware = catalog.find_hardware(run.hardware);
  const Coefficients c(calibration, hardware.id, hardware.vendor, run.engine.name,
                       run.engine.version);
  return c("engine_context_bytes");
}

RolloutMemory run_rollout_memory(const SimRun& run, const Catalog& catalog,
                                 const Calibration& calibration) {
  RolloutMemorySettings s;
  s.layout = rollout_layout(run);
  const auto& model = catalog.find_model(run.model);
  if (model.is_moe() && run.rollout.ep == 0) s.layout.etp = s.layout.tp;
  s.memory_bytes = catalog.find_hardware(run.hardware).memory_bytes;
  s.memory_fraction =
      run.engine.memory_fraction > 0 ? run.engine.memory_fraction : kDefaultFraction;
  if (!run.rollout_dtype.empty()) s.dtype = run.rollout_dtype;
  if (!run.kv_dtype.empty()) s.kv_dtype = run.kv_dtype;
  s.max_batched_tokens =
      run.engine.max_batched_tokens > 0 ? run.engine.max_batched_tokens : kDefaultBatchedTokens;
  s.chunk_moe = run.engine.chunk_moe;
  s.other_bytes = engine_context_bytes(run, catalog, calibration);
  return rollout_memory(model, s);
}

int64_t slots_that_fit(const SimRun& run, const LengthModel& lengths, int64_t kv_tokens) {
  const auto& w = run.workload;
  const int64_t samples =
      at_least_one(w.prompts * at_least_one(w.samples_per_prompt) / rollout_layout(run).dp);
  const auto drawn = sample_lengths(run, lengths);
  const double prompt = w.prompt_len.mean.value_or(0.25 * to_double(w.prompt_len.max));
  const double all = slot_tokens(drawn, prompt, false), refilled = slot_tokens(drawn, prompt, true);
  if (to_double(samples) * all <= to_double(kv_tokens)) return samples;
  return std::clamp<int64_t>(static_cast<int64_t>(to_double(kv_tokens) / std::max(1.0, refilled)),
                             1, samples);
}

std::vector<PlanFinding> check_plan(const SimRun& run, const Catalog& catalog,
                                    const Calibration& calibration) {
  return Rules(run, catalog, calibration).findings();
}

}  // namespace keel::sim
