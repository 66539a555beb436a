// One published or planned run as `schema: sim-runs/1` states it: the inputs of a prediction, and
// what was measured. Predictions read everything but `measured`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "keel/balance/layout.h"
#include "keel/base/config_finding.h"

namespace keel::sim {

enum class RunKind {
  kRlStep,
  kRollout,
  kTrainStep,
  kRlEpoch,
  kDecodeBs1,
  kServing,
  kTpot,
  kSync,
  kKernel
};
std::string run_kind_name(RunKind kind);  // "rl_step"

struct LengthStats {
  std::optional<double> mean;  // not published
  int64_t max = 0;             // 0 = no limit stated
};

// 0 = not stated everywhere below; degrees are then derived (complete_layout).
struct TrainLayout {
  int64_t devices = 0, tp = 0, pp = 0, cp = 0, ulysses = 0, ep = 0, etp = 0, dp = 0, vp = 0;
  int64_t fsdp = 0;
  std::string engine;  // "megatron", "fsdp2", "deepspeed-zero3", ...
  std::string
      recompute;  // "full", "moe_zero_memory_level1", "offload_activations", "4 layers", ...
  std::string optimizer;           // "swap_to_host", "offload_all", "cpu_offload_1.0"
  std::string attention;           // "flash_attention_3"
  std::string dispatch;            // free text of the publication
  std::string dispatcher;          // "hybridep"
  std::vector<int64_t> pp_layers;  // layers of each stage
  int64_t lora_rank = 0;
  bool compile = false, ep_overlap = false;
  std::optional<bool> force_balanced_routing;
};

struct RolloutLayout {
  int64_t devices = 0, tp = 0, pp = 0, ep = 0, dp = 0, instances = 0;
  std::string engine;
  bool attention_dp = false;   // attention on dp ranks, experts over all
  bool disaggregated = false;  // prefill elsewhere
};

struct Workload {
  std::string dataset, algorithm, objective, op, arrival, critic;
  int64_t prompts = 0, samples_per_prompt = 0, train_prompts = 0, minibatch_prompts = 0;
  int64_t minibatches = 0, mini_updates = 0, generation_batches = 0, steps = 0, sequences = 0;
  int64_t requests = 0, input_len = 0, output_len = 0, batch = 0, concurrency = 0, live_per_dp = 0;
  int64_t seq_len = 0, micro_batch = 0, micro_batches = 0, global_batch = 0, tokens_per_step = 0;
  int64_t max_global_batch = 0, queries = 0, ppo_epochs = 0, multi_turn = 0, staleness_steps = -1;
  int64_t m = 0, k = 0, n = 0;
  LengthStats prompt_len, response_len, total_len, seq_len_stats;  // seq_len may be a map
  bool ref_pass = false, old_logprob_pass = false;
  std::vector<int64_t> live_requests_every_1000_steps;
};

struct Speculation {
  std::string method;  // "suffix_automaton", "mtp"; "" = none
  int64_t tokens = 0;
  int64_t batch_threshold = 0;
};

struct EngineSettings {
  std::string name, version, graph_mode, prompt_order, attention_split, feature_level;
  int64_t max_num_seqs = 0, max_batched_tokens = 0, chunk_moe = 0, router_forced_to_experts = 0;
  std::vector<int64_t> graph_sizes;
  double memory_fraction = 0, staleness = 0;
  bool lockstep_dp = false, rebalance = false, gc_off = false, cpu_pinned = false, eplb = false;
  bool checkpoint_engine = false, partial_rollout = false, fixed_length = false;
  bool decode_only = false;
  std::optional<bool> force_balanced_routing;
  Speculation speculative;
};

struct SimRun {
  std::string id, family, model, placement, confidence, notes;
  std::string file;  // and line of the entry, for messages
  int line = 0;
  RunKind kind = RunKind::kRlStep;
  std::string hardware;  // id
  int64_t devices = 0, cards = 0, devices_per_node = 0;
  std::string train_dtype, rollout_dtype, kv_dtype;  // "" = not stated (reads as bf16)
  TrainLayout train;
  RolloutLayout rollout;
  Workload workload;
  EngineSettings engine;
  std::map<std::string, double> measured;  // scalars only; lists have no target
  std::vector<std::string> targets;

  // Accept rate published with the speculation targets: a length-like input (tpot_ms_suffix).
  std::optional<double> accept_rate;
};

// Degrees that a run leaves open, filled in: missing ones are 1, dp takes the remaining devices.
balance::Layout train_layout(const SimRun& run);
balance::Layout rollout_layout(const SimRun& run);

// Reads a file. Unknown fields, wrong types and impossible values throw Error(kInvalid) that names
// file:line, field and the nearest known field.
// Fields that no known name is near to are warnings, because publications state more than the twin
// reads; they are added to *warnings where it is set.
std::vector<SimRun> load_runs(const std::string& path, ConfigFindings* warnings = nullptr);
std::vector<SimRun> parse_runs(const std::string& text, const std::string& file_name,
                               ConfigFindings* warnings = nullptr);

}  // namespace keel::sim
