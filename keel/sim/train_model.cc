// Training steps and the passes of an RL step over given sequences.
#include <algorithm>
#include <cmath>
#include <optional>

#include "keel/base/error.h"
#include "keel/sim/numbers.h"
#include "keel/sim/predict.h"
#include "keel/sim/train_passes.h"

namespace keel::sim {
namespace {

bool ends_with_word(const std::string& text, const char* word) {
  return text.find(word) != std::string::npos;
}

// Sequences of an RL batch, drawn where only their mean is known.
std::vector<int64_t> step_lengths(const SimRun& run, const Catalog& catalog, uint64_t seed) {
  const Workload& w = run.workload;
  const int64_t samples = std::max<int64_t>(1, w.samples_per_prompt);
  const int64_t prompts = w.train_prompts > 0 ? w.train_prompts : w.prompts;
  KEEL_REQUIRE(prompts > 0, "{}:{}: [workload.prompts] expected at least 1, got 0", run.file,
               run.line);
  const double prompt = w.prompt_len.mean.value_or(to_double(w.prompt_len.max) * 0.08);
  LengthStats total = w.total_len;
  if (!total.mean && w.seq_len_stats.mean) total = w.seq_len_stats;
  if (total.mean) {
    auto out =
        draw_lengths(catalog.lengths, prompts, samples, *total.mean,
                     std::max<int64_t>(total.max, static_cast<int64_t>(*total.mean) + 1), seed);
    return out;
  }
  const int64_t cap = std::max<int64_t>(1, w.response_len.max);
  const double mean = w.response_len.mean.value_or(assumed_response_mean(run));
  std::vector<int64_t> out;
  if (w.dataset == "fixed length" || run.engine.fixed_length) {
    out.assign(static_cast<size_t>(prompts * samples), static_cast<int64_t>(mean));
  } else {
    out =
        draw_lengths(catalog.lengths, prompts, samples, std::min(mean, to_double(cap)), cap, seed);
  }
  for (auto& n : out) n += static_cast<int64_t>(prompt);
  return out;
}

}  // namespace

double assumed_response_mean(const SimRun& run) {
  // Where no mean is published: a quarter of the cap, the middle of the published ones.
  return std::max(1.0, 0.25 * to_double(run.workload.response_len.max));
}

PassSettings pass_settings(const SimRun& run) {
  PassSettings s;
  const auto& t = run.train;
  s.layout = train_layout(run);
  if (t.ulysses > 1 && t.cp <= 1) {  // FSDP with Ulysses: its groups are context-parallel
    s.layout.cp = static_cast<int32_t>(t.ulysses);
    s.layout.dp = std::max<int32_t>(1, s.layout.dp / s.layout.cp);
  }
  s.devices_per_node = run.devices_per_node > 0 ? run.devices_per_node : 8;
  s.virtual_stages = std::max<int64_t>(1, t.vp);
  s.pp_layers = t.pp_layers;
  s.dtype = run.train_dtype.empty() ? "bf16" : run.train_dtype;
  s.attention = t.attention;
  std::tie(s.recompute, s.recompute_layers) = parse_recompute(t.recompute);
  s.lora_rank = t.lora_rank;
  s.balanced_routing = t.force_balanced_routing.value_or(false);
  s.ep_overlap = t.ep_overlap;
  s.policy_loss =
      run.kind != RunKind::kTrainStep || run.workload.objective == "rl" || run.workload.prompts > 0;
  s.sharded_weights =
      ends_with_word(t.engine, "fsdp") || ends_with_word(t.engine, "zero3") || t.fsdp > 0;
  return s;
}

bool optimizer_on_host(const SimRun& run) {
  return run.train.optimizer.find("swap") != std::string::npos ||
         run.train.optimizer.find("offload") != std::string::npos;
}

std::string train_stack(const SimRun& run) { return run.train.engine; }

TrainBatch train_batch(const SimRun& run, const Catalog& catalog, uint64_t seed) {
  const TwinModel& model = catalog.find_model(run.model);
  const PassSettings s = pass_settings(run);
  const Workload& w = run.workload;
  TrainBatch out;
  const double dp = s.layout.dp;
  if (w.prompts == 0) {  // fixed lengths
    const int64_t seq = w.seq_len > 0 ? w.seq_len : 4096;
    const double micro = to_double(std::max<int64_t>(1, w.micro_batch));
    double count = to_double(w.micro_batches);
    if (w.tokens_per_step > 0) {
      count = to_double(w.tokens_per_step) / to_double(seq) / micro / dp;
    } else if (w.global_batch > 0) {
      count = to_double(w.global_batch) / micro / dp;
    }
    if (count <= 0) count = 32;
    MicroBatchLoad load{micro * to_double(seq), micro * attention_flops(model, to_double(seq))};
    out.micro_batches.assign(static_cast<size_t>(std::max(1.0, std::ceil(count))), load);
    out.updates = 1;
    out.tokens = load.tokens * dp * to_double(static_cast<int64_t>(out.micro_batches.size()));
    return out;
  }
  const auto lengths = step_lengths(run, catalog, seed);
  int64_t updates = std::max<int64_t>({1, w.mini_updates, w.minibatches});
  if (w.minibatch_prompts > 0) {
    updates = std::max<int64_t>(1, w.prompts / w.minibatch_prompts);
  }
  out.updates = updates;
  int64_t cap = w.total_len.max > 0
                    ? w.total_len.max
                    : std::max(w.response_len.max + w.prompt_len.max, w.seq_len_stats.max);
  cap = std::max(cap, *std::max_element(lengths.begin(), lengths.end()));
  // Sequences are dealt to the data-parallel groups in turn and packed in order under the cap.
  const auto groups = static_cast<size_t>(dp) * static_cast<size_t>(updates);
  std::vector<std::vector<MicroBatchLoad>> packed(groups);
  std::vector<int64_t> sorted = lengths;
  std::stable_sort(sorted.begin(), sorted.end(), std::greater<>());
  std::vector<std::vector<int64_t>> dealt(groups);
  for (size_t i = 0; i < sorted.size(); ++i) {
    const size_t lap = i / groups, at = i % groups;
    dealt[lap % 2 == 0 ? at : groups - 1 - at].push_back(sorted[i]);
  }
  for (size_t g = 0; g < groups; ++g) {
    std::vector<int64_t> room;
    for (const int64_t n : dealt[g]) {
      size_t bin = 0;
      while (bin < room.size() && room[bin] < n) ++bin;
      if (bin == room.size()) {
        room.push_back(cap);
        packed[g].emplace_back();
      }
      room[bin] -= n;
      packed[g][bin].tokens += to_double(n);
      packed[g][bin].attention_flops += attention_flops(model, to_double(n));
      out.tokens += to_double(n);
    }
  }
  // In lockstep the dearest group of each position decides: take the fullest group of each update.
  for (int64_t u = 0; u < updates; ++u) {
    const auto begin = packed.begin() + u * static_cast<int64_t>(dp);
    const auto most =
        std::max_element(begin, begin + static_cast<int64_t>(dp),
                         [](const auto& a, const auto& b) { return a.size() < b.size(); });
    out.micro_batches.insert(out.micro_batches.end(), most->begin(), most->end());
  }
  return out;
}

TrainStep train_step(const SimRun& run, const Catalog& catalog, const Coefficients& c,
                     uint64_t seed) {
  const TwinModel& model = catalog.find_model(run.model);
  const HardwareSpec& hw = catalog.find_hardware(run.hardware);
  const PassSettings s = pass_settings(run);
  const TrainBatch batch = train_batch(run, catalog, seed);
  TrainStep out;
  out.tokens = batch.tokens;
  const size_t per_update = batch.micro_batches.size() / static_cast<size_t>(batch.updates);
  for (int64_t u = 0; u < batch.updates; ++u) {
    const auto begin = batch.micro_batches.begin() + u * static_cast<int64_t>(per_update);
    const auto end = u + 1 == batch.updates ? batch.micro_batches.end()
                                            : begin + static_cast<int64_t>(per_update);
    const std::vector<MicroBatchLoad> mine(begin, end);
    add_parts(out.update, pass_time(model, hw, s, mine, c, true));
  }
  add_parts(out.update, optimizer_time(model, hw, s, optimizer_on_host(run), c),
            to_double(batch.updates));
  PassTime fixed;
  fixed.parts.emplace_back("step", c("train_step_s"));
  fixed.total = fixed.parts.front().second;
  add_parts(out.update, fixed, to_double(batch.updates));
  out.forward = pass_time(model, hw, s, batch.micro_batches, c, false);
  add_parts(out.forward, fixed);
  return out;
}

std::vector<Prediction> predict_train(const SimRun& run, const Catalog& catalog,
                                      const Calibration& calibration,
                                      const PredictOptions& options) {
  const HardwareSpec& hw = catalog.find_hardware(run.hardware);
  const TwinModel& model = catalog.find_model(run.model);
  const Coefficients c(calibration, hw.id, hw.vendor, train_stack(run), "", options.used);
  const TrainStep step = train_step(run, catalog, c, options.seed);
  const double seconds = step.update.total;
  std::vector<Prediction> out;
  for (const auto& target : run.targets) {
    Prediction p{target, 0, 0, {}};
    if (target == "step_s" || target == "update_s") {
      p.value = seconds;
      p.parts = step.update.parts;
    } else if (target == "ref_s" || target == "forward_s") {
      p.value = step.forward.total;
      p.parts = step.forward.parts;
    } else if (target == "tokens_per_s_per_gpu") {
      p.value = step.tokens / seconds / to_double(run.train.devices);
      p.parts = step.update.parts;
    } else if (target == "tflops_per_gpu") {
      p.value = step.update.device_flops / seconds / 1e12;
      p.parts = step.update.parts;
    } else if (target == "mfu") {
      p.value = step.update.device_flops / seconds / hw.peak("bf16");
      p.parts = step.update.parts;
    } else if (target == "weight_sync_s_derived") {
      p.value = 2 * to_double(total_params(model)) / c("weight_write_bytes_per_s");
      p.parts.emplace_back("write", p.value);
    } else {
      continue;
    }
    out.push_back(std::move(p));
  }
  for (auto& p : predict_train_memory(run, catalog, calibration, options)) {
    out.push_back(std::move(p));
  }
  return out;
}

}  // namespace keel::sim
