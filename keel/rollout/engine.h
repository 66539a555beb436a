// The generation engine: continuous batching, prefix cache, stop rules, sample records. Torch-free.
//
// A sample depends only on the weights, its prompt, its parameters and (seed, position): not on the
// batch, order, chunking, pool size or preemption. One thread at a time may call an engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "keel/rollout/sample.h"

namespace keel::rollout {

class Runner;

// Turns ids of one answer into text, piece by piece; complete UTF-8 characters only. Stop strings
// need it; cli and rl adapt the tokenizer.
class TextStream {
 public:
  virtual ~TextStream() = default;
  virtual std::string push(int32_t id) = 0;
};
using TextStreamFactory = std::function<std::unique_ptr<TextStream>()>;

struct EngineConfig {
  int32_t max_seqs = 64;
  int32_t step_tokens = 2048;
  int32_t chunk_tokens = 0;
  int32_t max_preemptions = 4;
  bool prefix_cache = true;
  uint64_t seed = 0;

  template <class V>
  void visit(V& v) {
    v(max_seqs, "max_seqs", "sequences that generate at once");
    v(step_tokens, "step_tokens", "rows of one engine step (decode and prefill), >= max_seqs");
    v(chunk_tokens, "chunk_tokens", "prefill rows of one sequence in one step; 0 = step_tokens");
    v(max_preemptions, "max_preemptions", "then a sequence waits until its whole KV need is free");
    v(prefix_cache, "prefix_cache", "share KV blocks of equal prefixes between requests");
    v(seed, "seed", "mixed with each request's seed");
  }
};

struct EngineStats {
  int64_t num_steps = 0;
  int64_t num_finished = 0;
  int64_t generated_tokens = 0;
  int64_t computed_tokens = 0;  // rows through the model
  int64_t reused_tokens = 0;    // rows saved by prefix cache and groups
  int64_t num_preemptions = 0;
  int32_t num_running = 0;
  int32_t num_waiting = 0;
  int32_t peak_running = 0;
  int32_t peak_used_blocks = 0;
  int32_t num_blocks = 0;  // without the null block
};

class Engine {
 public:
  // eos_ids: the model's end-of-sequence ids. text may be empty if no request has stop strings.
  Engine(const EngineConfig& config, std::unique_ptr<Runner> runner, std::vector<int32_t> eos_ids,
         TextStreamFactory text = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Throws Error(kInvalid): empty prompt, parameter or id out of range, a duplicate live id, a
  // length over the model's context or the KV pool, stop strings without text.
  void submit(Request request);

  // One model step (schedule, run, sample, stop rules). Does nothing without work. What the runner
  // throws passes through; the engine can then only be destroyed.
  void step();
  bool has_work() const;

  // Moves finished samples out, in the order in which they finished (within a step: plan order).
  std::vector<Sample> take_finished();

  // Ends a live request; its sample so far is delivered with StopReason::kAbort. False if unknown.
  bool abort(int64_t id);

  // Forgets cached prefixes. Not needed when weights change: the runner's weight version is watched
  // before each step; unfinished requests go on with the new weights (their KV is computed again,
  // their samples record both versions).
  void reset_prefix_cache();

  // Runs until `requests` are finished; samples in the order of the requests. progress(finished,
  // total, generated tokens of these requests) is called after every step; returning false aborts
  // what is left. Needs an engine without other work.
  using Progress = std::function<bool(int64_t finished, int64_t total, int64_t tokens)>;
  std::vector<Sample> generate(std::vector<Request> requests, const Progress& progress = {});

  EngineStats stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace keel::rollout
