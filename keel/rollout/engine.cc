#include "keel/rollout/engine.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "keel/base/error.h"
#include "keel/base/rng.h"
#include "keel/rollout/runner.h"
#include "keel/rollout/stop_rule.h"
#include "keel/sched/scheduler.h"

namespace keel::rollout {
namespace {

sched::SchedulerConfig scheduler_config(const EngineConfig& config, int32_t num_blocks) {
  return {.num_blocks = num_blocks,
          .max_seqs = config.max_seqs,
          .step_tokens = config.step_tokens,
          .chunk_tokens = config.chunk_tokens,
          .max_preemptions = config.max_preemptions,
          .prefix_cache = config.prefix_cache};
}

void check_params(const Request& request, int32_t vocab_size, int32_t max_positions) {
  const auto& p = request.params;
  const auto id = request.id;
  KEEL_REQUIRE(std::isfinite(p.temperature) && p.temperature >= 0,
               "[rollout.temperature] expected >= 0, got {} in request {}", p.temperature, id);
  KEEL_REQUIRE(p.top_k >= 0, "[rollout.top_k] expected >= 0 (0 = off), got {} in request {}",
               p.top_k, id);
  KEEL_REQUIRE(p.top_p > 0 && p.top_p <= 1, "[rollout.top_p] expected in (0, 1], got {} in {}",
               p.top_p, id);
  KEEL_REQUIRE(p.min_p >= 0 && p.min_p <= 1, "[rollout.min_p] expected in [0, 1], got {} in {}",
               p.min_p, id);
  KEEL_REQUIRE(p.max_new_tokens >= 1,
               "[rollout.max_new_tokens] expected >= 1, got {} in request {}", p.max_new_tokens,
               id);
  const auto bad_id = [vocab_size](int32_t t) { return t < 0 || t >= vocab_size; };
  for (const auto* ids : {&request.prompt_ids, &p.stop_ids}) {
    const auto bad = std::find_if(ids->begin(), ids->end(), bad_id);
    KEEL_REQUIRE(bad == ids->end(), "[rollout] expected token ids in [0, {}), got {} in request {}",
                 vocab_size, *bad, id);
  }
  for (const auto& s : p.stop_strings) {
    KEEL_REQUIRE(!s.empty(), "[rollout.stop_strings] expected text, got \"\" in request {}", id);
  }
  KEEL_REQUIRE(static_cast<int64_t>(request.prompt_ids.size()) + p.max_new_tokens <= max_positions,
               "[rollout] expected prompt + new tokens <= {} (the model's context), got {} + {} in "
               "request {}; try fewer new tokens",
               max_positions, request.prompt_ids.size(), p.max_new_tokens, id);
}

}  // namespace

struct Engine::Impl {
  // A request that has not ended, under its scheduler handle. Heap: the stop rule points into it.
  struct Live {
    Sample sample;
    StopRule stop;
    ops::SampleParams params;
    uint64_t key = 0;

    void record(const ops::SampledToken& token, int64_t version);
  };

  Impl(const EngineConfig& config, std::unique_ptr<Runner> the_runner,
       std::vector<int32_t> the_eos_ids, TextStreamFactory the_text)
      : runner(std::move(the_runner)),
        scheduler(scheduler_config(config, runner->num_blocks())),
        eos_ids(std::move(the_eos_ids)),
        text(std::move(the_text)),
        seed(config.seed),
        numerics_id(runner->numerics_id()),
        version(runner->weight_version()) {
    scheduler.set_weight_version(version);
  }

  void watch_weights();
  RunnerBatch batch_of(const sched::StepPlan& plan);
  void deliver(int32_t handle, StopReason reason);

  std::unique_ptr<Runner> runner;
  sched::Scheduler scheduler;
  std::vector<int32_t> eos_ids;
  TextStreamFactory text;
  uint64_t seed;
  std::string numerics_id;
  int64_t version;
  std::vector<std::unique_ptr<Live>> live;       // by handle; null where unused
  std::unordered_map<int64_t, int32_t> handles;  // request id -> handle
  std::vector<Sample> finished;
  int64_t generated_tokens = 0;

  // Buffers of one step.
  std::vector<int32_t> positions;
  std::vector<ops::KvSlot> slots;
  std::vector<ops::AttentionSequence> sequences;
  std::vector<int32_t> sample_rows;
  std::vector<ops::SampleParams> sample_params;
  std::vector<ops::SampledToken> sampled;  // only grows: keeps the capacity of `kept`
  std::vector<sched::SampleResult> results;
  std::vector<std::pair<int32_t, StopReason>> stopped;
};

void Engine::Impl::Live::record(const ops::SampledToken& token, int64_t version) {
  const auto n = static_cast<int32_t>(sample.log_probs.size());
  sample.ids.push_back(token.id);
  sample.log_probs.push_back(token.log_prob);
  sample.entropies.push_back(token.entropy);
  sample.loss_mask.push_back(1);
  if (!token.kept.empty() && sample.kept_offsets.empty()) sample.kept_offsets.assign(n + 1, 0);
  if (!sample.kept_offsets.empty()) {
    sample.kept_ids.insert(sample.kept_ids.end(), token.kept.begin(), token.kept.end());
    sample.kept_offsets.push_back(static_cast<int64_t>(sample.kept_ids.size()));
  }
  if (sample.versions.empty() || sample.versions.back().version != version) {
    sample.versions.push_back({version, n, n});
  }
  sample.versions.back().end = n + 1;
}

void Engine::Impl::watch_weights() {
  const int64_t now = runner->weight_version();
  if (now == version) return;
  version = now;
  scheduler.set_weight_version(now);
}

RunnerBatch Engine::Impl::batch_of(const sched::StepPlan& plan) {
  positions.clear();
  slots.clear();
  sequences.clear();
  for (const auto& s : plan.segments) {
    sequences.push_back({s.first_row, s.num_rows, s.first_position, s.blocks});
    for (int32_t i = 0; i < s.num_rows; ++i) {
      const int32_t position = s.first_position + i;
      positions.push_back(position);
      slots.push_back({s.first_row + i, s.blocks[position / sched::kBlockTokens],
                       position % sched::kBlockTokens});
    }
  }
  sample_rows.clear();
  sample_params.clear();
  for (const auto& s : plan.samples) {
    const auto& l = *live[s.handle];
    sample_rows.push_back(s.row);
    sample_params.push_back(l.params);
    sample_params.back().uniform = uniform(l.key, static_cast<uint64_t>(s.position));
  }
  return {plan.copies, plan.tokens, positions, slots, sequences, sample_rows, sample_params};
}

void Engine::Impl::deliver(int32_t handle, StopReason reason) {
  auto& l = *live[handle];
  l.sample.stop_reason = reason;
  handles.erase(l.sample.id);
  finished.push_back(std::move(l.sample));
  live[handle].reset();
}

Engine::Engine(const EngineConfig& config, std::unique_ptr<Runner> runner,
               std::vector<int32_t> eos_ids, TextStreamFactory text)
    : impl_(
          std::make_unique<Impl>(config, std::move(runner), std::move(eos_ids), std::move(text))) {}

Engine::~Engine() = default;

void Engine::submit(Request request) {
  auto& e = *impl_;
  check_params(request, e.runner->vocab_size(), e.runner->max_positions());
  const auto& p = request.params;
  KEEL_REQUIRE(p.stop_strings.empty() || e.text,
               "[rollout.stop_strings] expected a tokenizer to look for them, got none");
  KEEL_REQUIRE(!e.handles.contains(request.id),
               "[rollout] expected a new request id, got {} of a live request", request.id);
  const int32_t handle = e.scheduler.submit(
      {request.id, request.group, request.prompt_ids, p.max_new_tokens, request.priority});
  if (static_cast<size_t>(handle) >= e.live.size()) e.live.resize(handle + 1);
  e.handles.emplace(request.id, handle);
  auto live = std::make_unique<Impl::Live>();
  live->params = {p.temperature, p.top_k, p.top_p, p.min_p};
  live->key = mix_key(e.seed, p.seed);
  auto& sample = live->sample;
  sample.id = request.id;
  sample.group = request.group;
  sample.num_prompt = static_cast<int32_t>(request.prompt_ids.size());
  sample.ids = std::move(request.prompt_ids);
  sample.params = std::move(request.params);
  sample.numerics_id = e.numerics_id;
  live->stop =
      StopRule(sample.params, e.eos_ids, sample.params.stop_strings.empty() ? nullptr : e.text());
  e.live[handle] = std::move(live);
}

void Engine::step() {
  auto& e = *impl_;
  e.watch_weights();
  const auto& plan = e.scheduler.plan(/*now_us=*/0);
  if (plan.empty()) return;
  const auto batch = e.batch_of(plan);
  const size_t n = plan.samples.size();
  if (e.sampled.size() < n) e.sampled.resize(n);
  e.runner->run(batch, std::span(e.sampled).first(n));
  e.results.clear();
  e.stopped.clear();
  for (size_t i = 0; i < n; ++i) {
    const int32_t handle = plan.samples[i].handle;
    auto& l = *e.live[handle];
    const int32_t token = e.sampled[i].id;
    l.record(e.sampled[i], e.version);
    const auto reason = l.stop.after(token, static_cast<int32_t>(l.sample.log_probs.size()));
    e.results.push_back({token, reason.has_value()});
    if (reason) e.stopped.emplace_back(handle, *reason);
  }
  e.scheduler.commit(e.results);
  e.generated_tokens += static_cast<int64_t>(n);
  for (const auto& [handle, reason] : e.stopped) e.deliver(handle, reason);
}

bool Engine::has_work() const { return impl_->scheduler.has_work(); }

std::vector<Sample> Engine::take_finished() { return std::exchange(impl_->finished, {}); }

bool Engine::abort(int64_t id) {
  auto& e = *impl_;
  const auto found = e.handles.find(id);
  if (found == e.handles.end()) return false;
  const int32_t handle = found->second;
  e.scheduler.abort(handle);
  e.deliver(handle, StopReason::kAbort);
  return true;
}

void Engine::reset_prefix_cache() { impl_->scheduler.reset_prefix_cache(); }

std::vector<Sample> Engine::generate(std::vector<Request> requests, const Progress& progress) {
  auto& e = *impl_;
  KEEL_CHECK(!has_work() && e.finished.empty(), "generate() on an engine that has other work");
  std::unordered_map<int64_t, size_t> places;
  const auto abort_all = [&] {
    for (const auto& [id, place] : places) abort(id);
  };
  try {
    for (auto& request : requests) {
      const int64_t id = request.id;
      submit(std::move(request));
      places.emplace(id, places.size());
    }
  } catch (...) {
    abort_all();
    e.finished.clear();
    throw;
  }
  const auto total = static_cast<int64_t>(requests.size());
  const int64_t tokens_before = e.generated_tokens;
  while (has_work()) {
    step();
    const auto done = static_cast<int64_t>(e.finished.size());
    if (progress && !progress(done, total, e.generated_tokens - tokens_before)) abort_all();
  }
  std::vector<Sample> samples(requests.size());
  for (auto& sample : take_finished()) samples[places.at(sample.id)] = std::move(sample);
  return samples;
}

EngineStats Engine::stats() const {
  const auto& e = *impl_;
  const auto& s = e.scheduler.stats();
  return {.num_steps = s.num_steps,
          .num_finished = s.num_finished,
          .generated_tokens = e.generated_tokens,
          .computed_tokens = s.computed_tokens,
          .reused_tokens = s.reused_tokens,
          .num_preemptions = s.num_preemptions,
          .num_running = e.scheduler.num_running(),
          .num_waiting = e.scheduler.num_waiting(),
          .peak_running = s.peak_running,
          .peak_used_blocks = s.peak_used_blocks,
          .num_blocks = e.scheduler.pool().capacity()};
}

}  // namespace keel::rollout
