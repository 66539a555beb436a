#include "keel/sim/run.h"

#include <algorithm>
#include <array>
#include <utility>

#include "keel/base/error.h"
#include "keel/sim/input/fields.h"

namespace keel::sim {
namespace {

constexpr std::array<std::pair<RunKind, const char*>, 9> kKinds = {{
    {RunKind::kRlStep, "rl_step"},
    {RunKind::kRollout, "rollout"},
    {RunKind::kTrainStep, "train_step"},
    {RunKind::kRlEpoch, "rl_epoch"},
    {RunKind::kDecodeBs1, "decode_bs1"},
    {RunKind::kServing, "serving"},
    {RunKind::kTpot, "tpot"},
    {RunKind::kSync, "sync"},
    {RunKind::kKernel, "kernel"},
}};

using Counts = std::initializer_list<std::pair<const char*, int64_t*>>;
using Texts = std::initializer_list<std::pair<const char*, std::string*>>;
using Flags = std::initializer_list<std::pair<const char*, bool*>>;

void read_all(MapReader& in, const Counts& counts, const Texts& texts, const Flags& flags) {
  for (const auto& [key, out] : counts) in.read(key, *out);
  for (const auto& [key, out] : texts) in.read(key, *out);
  for (const auto& [key, out] : flags) in.read(key, *out);
}

void read_train(MapReader in, TrainLayout& t) {
  read_all(in,
           {{"devices", &t.devices},
            {"tp", &t.tp},
            {"pp", &t.pp},
            {"cp", &t.cp},
            {"ulysses", &t.ulysses},
            {"ep", &t.ep},
            {"etp", &t.etp},
            {"dp", &t.dp},
            {"vp", &t.vp},
            {"fsdp", &t.fsdp},
            {"lora_rank", &t.lora_rank}},
           {{"engine", &t.engine},
            {"recompute", &t.recompute},
            {"optimizer", &t.optimizer},
            {"attention", &t.attention},
            {"dispatch", &t.dispatch},
            {"dispatcher", &t.dispatcher}},
           {{"compile", &t.compile}, {"ep_overlap", &t.ep_overlap}});
  in.read("pp_layers", t.pp_layers);
  in.read("force_balanced_routing", t.force_balanced_routing);
  in.finish(Unknown::kErrorIfNear);
}

void read_rollout(MapReader in, RolloutLayout& r) {
  read_all(in,
           {{"devices", &r.devices},
            {"tp", &r.tp},
            {"pp", &r.pp},
            {"ep", &r.ep},
            {"dp", &r.dp},
            {"instances", &r.instances}},
           {{"engine", &r.engine}},
           {{"attention_dp", &r.attention_dp}, {"disaggregated", &r.disaggregated}});
  in.finish(Unknown::kErrorIfNear);
}

void read_lengths(MapReader in, LengthStats& s) {
  in.read("mean", s.mean);
  in.read("max", s.max);
  in.finish(Unknown::kErrorIfNear);
  if (s.mean && s.max > 0 && *s.mean > static_cast<double>(s.max)) {
    in.fault("mean", fmt::format("at most the maximum {}", s.max), fmt::format("{:g}", *s.mean));
  }
}

void read_workload(MapReader in, Workload& w) {
  read_all(in,
           {{"prompts", &w.prompts},
            {"samples_per_prompt", &w.samples_per_prompt},
            {"train_prompts", &w.train_prompts},
            {"minibatch_prompts", &w.minibatch_prompts},
            {"minibatches", &w.minibatches},
            {"mini_updates", &w.mini_updates},
            {"generation_batches", &w.generation_batches},
            {"steps", &w.steps},
            {"sequences", &w.sequences},
            {"requests", &w.requests},
            {"input_len", &w.input_len},
            {"output_len", &w.output_len},
            {"batch", &w.batch},
            {"concurrency", &w.concurrency},
            {"live_per_dp", &w.live_per_dp},
            {"micro_batch", &w.micro_batch},
            {"micro_batches", &w.micro_batches},
            {"global_batch", &w.global_batch},
            {"tokens_per_step", &w.tokens_per_step},
            {"max_global_batch", &w.max_global_batch},
            {"queries", &w.queries},
            {"ppo_epochs", &w.ppo_epochs},
            {"multi_turn", &w.multi_turn},
            {"staleness_steps", &w.staleness_steps},
            {"m", &w.m},
            {"k", &w.k},
            {"n", &w.n}},
           {{"dataset", &w.dataset},
            {"algorithm", &w.algorithm},
            {"objective", &w.objective},
            {"op", &w.op},
            {"arrival", &w.arrival},
            {"critic", &w.critic}},
           {{"ref_pass", &w.ref_pass}, {"old_logprob_pass", &w.old_logprob_pass}});
  in.read("live_requests_every_1000_steps", w.live_requests_every_1000_steps);
  read_lengths(in.map("prompt_len"), w.prompt_len);
  read_lengths(in.map("response_len"), w.response_len);
  read_lengths(in.map("total_len"), w.total_len);
  if (in.is_map("seq_len")) {
    read_lengths(in.map("seq_len"), w.seq_len_stats);
  } else {
    in.read("seq_len", w.seq_len);
  }
  in.finish(Unknown::kErrorIfNear);
}

void read_engine(MapReader in, EngineSettings& e) {
  read_all(in,
           {{"max_num_seqs", &e.max_num_seqs},
            {"max_batched_tokens", &e.max_batched_tokens},
            {"chunk_moe", &e.chunk_moe},
            {"router_forced_to_experts", &e.router_forced_to_experts}},
           {{"name", &e.name},
            {"version", &e.version},
            {"graph_mode", &e.graph_mode},
            {"prompt_order", &e.prompt_order},
            {"attention_split", &e.attention_split},
            {"feature_level", &e.feature_level}},
           {{"lockstep_dp", &e.lockstep_dp},
            {"rebalance", &e.rebalance},
            {"gc_off", &e.gc_off},
            {"cpu_pinned", &e.cpu_pinned},
            {"eplb", &e.eplb},
            {"checkpoint_engine", &e.checkpoint_engine},
            {"partial_rollout", &e.partial_rollout},
            {"fixed_length", &e.fixed_length},
            {"decode_only", &e.decode_only}});
  in.read("graph_sizes", e.graph_sizes);
  in.read("memory_fraction", e.memory_fraction);
  in.read("staleness", e.staleness);
  in.read("force_balanced_routing", e.force_balanced_routing);
  if (e.memory_fraction > 1) {
    in.fault("memory_fraction", "a share of at most 1", fmt::format("{:g}", e.memory_fraction));
  }
  auto spec = in.map("speculative");
  spec.read("method", e.speculative.method);
  spec.read("tokens", e.speculative.tokens);
  spec.read("batch_threshold", e.speculative.batch_threshold);
  spec.finish(Unknown::kErrorIfNear);
  in.finish(Unknown::kErrorIfNear);
}

void read_kind(MapReader& in, SimRun& run) {
  std::string kind;
  in.require("kind");
  in.read("kind", kind);
  for (const auto& [value, name] : kKinds) {
    if (kind == name) {
      run.kind = value;
      return;
    }
  }
  if (in.has("kind")) {
    std::vector<std::string> names;
    for (const auto& [value, name] : kKinds) names.emplace_back(name);
    in.fault("kind", fmt::format("one of {}", fmt::join(names, ", ")), kind);
  }
}

void check_run(MapReader& in, const SimRun& run) {
  const auto& t = run.train;
  const int64_t stages = std::max<int64_t>(1, t.pp);
  if (!t.pp_layers.empty() && static_cast<int64_t>(t.pp_layers.size()) != stages) {
    in.fault("layout", fmt::format("train.pp_layers with {} stages", stages),
             fmt::format("{}", t.pp_layers.size()));
  }
  if (run.devices < 1) in.fault("hardware", "devices of at least 1", "none");
}

SimRun read_run(MapReader& in, const std::string& family, const std::string& file) {
  SimRun run;
  run.family = family;
  run.file = file;
  run.line = in.line();
  in.require("id");
  in.read("id", run.id);
  read_kind(in, run);
  in.require("hardware");
  auto hardware = in.map("hardware");
  hardware.require("ref");
  hardware.read("ref", run.hardware);
  hardware.read("devices", run.devices, 1);
  hardware.read("cards", run.cards, 1);
  hardware.read("devices_per_node", run.devices_per_node, 1);
  hardware.finish(Unknown::kErrorIfNear);
  in.read("model", run.model);
  auto precision = in.map("precision");
  precision.read("train", run.train_dtype);
  precision.read("rollout", run.rollout_dtype);
  precision.read("kv", run.kv_dtype);
  precision.finish(Unknown::kErrorIfNear);
  auto layout = in.map("layout");
  layout.read("placement", run.placement);
  read_train(layout.map("train"), run.train);
  read_rollout(layout.map("rollout"), run.rollout);
  layout.finish(Unknown::kErrorIfNear);
  read_workload(in.map("workload"), run.workload);
  read_engine(in.map("engine"), run.engine);
  auto measured = in.map("measured");
  for (const auto& [key, value] : measured.numbers()) {
    if (value) run.measured[key] = *value;
  }
  if (const auto it = run.measured.find("accept_rate"); it != run.measured.end()) {
    run.accept_rate = it->second;
  }
  in.read("targets", run.targets);
  in.read("confidence", run.confidence);
  in.read("notes", run.notes);
  in.ignore("source");
  in.finish(Unknown::kErrorIfNear);
  check_run(in, run);
  return run;
}

int32_t degree(int64_t value) { return static_cast<int32_t>(std::max<int64_t>(1, value)); }

}  // namespace

std::string run_kind_name(RunKind kind) {
  for (const auto& [value, name] : kKinds) {
    if (value == kind) return name;
  }
  KEEL_CHECK(false, "kind {}", static_cast<int>(kind));
}

balance::Layout train_layout(const SimRun& run) {
  const auto& t = run.train;
  balance::Layout out;
  out.tp = degree(t.tp);
  out.pp = degree(t.pp);
  out.cp = degree(t.cp);
  out.ulysses = degree(t.ulysses);
  out.ep = degree(t.ep);
  out.etp = degree(t.etp);
  const int64_t devices = t.devices > 0 ? t.devices : run.devices;
  const int64_t inner = int64_t{out.tp} * out.pp * out.cp;
  out.dp = t.dp > 0 ? static_cast<int32_t>(t.dp) : degree(devices / std::max<int64_t>(1, inner));
  return out;
}

balance::Layout rollout_layout(const SimRun& run) {
  const auto& r = run.rollout;
  balance::Layout out;
  out.tp = degree(r.tp);
  out.pp = degree(r.pp);
  out.ep = degree(r.ep);
  const int64_t devices = r.devices > 0 ? r.devices : run.devices;
  out.dp = r.dp > 0 ? static_cast<int32_t>(r.dp) : degree(devices / (int64_t{out.tp} * out.pp));
  return out;
}

std::vector<SimRun> parse_runs(const std::string& text, const std::string& file_name,
                               ConfigFindings* warnings) {
  const auto file = open_input(text, file_name, "sim-runs/1");
  MapReader in(file, file->root, "", 1);
  std::string family;
  in.require("family");
  in.read("family", family);
  std::vector<SimRun> runs;
  in.require("runs");
  for (auto& entry : in.maps("runs")) runs.push_back(read_run(entry, family, file_name));
  for (const char* key : {"schema", "note", "source"}) in.ignore(key);
  in.finish(Unknown::kError);
  file->findings.throw_if_errors();
  if (warnings != nullptr) {
    for (const auto& f : file->findings.all()) warnings->add(f);
  }
  return runs;
}

std::vector<SimRun> load_runs(const std::string& path, ConfigFindings* warnings) {
  return parse_runs(read_input_text(path), path, warnings);
}

}  // namespace keel::sim
