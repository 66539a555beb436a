#include "keel/sched/trace_replay.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "keel/base/error.h"

namespace keel::sched {
namespace {

// Token i of a segment, as the case files define it.
int32_t segment_token(int64_t segment, int64_t i) {
  return static_cast<int32_t>((segment * 7919 + i * 104729 + segment * i % 65521) % 32000);
}

void append_piece(const OrderedJson& piece, std::vector<int32_t>& tokens) {
  const auto p = piece.get<std::array<int64_t, 3>>();
  for (int64_t i = 0; i < p[2]; ++i) tokens.push_back(segment_token(p[0], p[1] + i));
}

class Replay {
 public:
  Replay(const TraceCase& trace, int32_t pool_blocks)
      : trace_(trace),
        scheduler_({.num_blocks = pool_blocks + 1,
                    .max_seqs = trace.max_seqs,
                    .step_tokens = trace.token_budget}),
        ended_(trace.requests.size(), -1) {
    out_.first_hits.assign(trace.requests.size(), -1);
    for (size_t r = 0; r < trace.requests.size(); ++r) {
      const auto& request = trace.requests[r];
      const int64_t worst = static_cast<int64_t>(request.prompt.size() + request.output.size());
      if (blocks_for(worst) > pool_blocks) {
        ended_[r] = 0;
      } else {
        todo_.push_back(static_cast<int32_t>(r));
      }
    }
  }

  TraceReplay run(double (*now_us)()) {
    while (!todo_.empty() || scheduler_.has_work()) {
      arrive();
      const double start = now_us ? now_us() : 0;
      const auto& plan = scheduler_.plan(step_);
      if (now_us) out_.plan_us += now_us() - start;
      ++step_;
      if (plan.empty()) continue;
      record(plan);
      commit(plan, now_us);
    }
    out_.num_steps = step_;
    out_.stats = scheduler_.stats();
    return std::move(out_);
  }

 private:
  void arrive() {
    std::erase_if(todo_, [&](int32_t r) {
      const auto& request = trace_.requests[r];
      if (request.arrival > step_) return false;
      if (request.after >= 0) {
        const int64_t ended = ended_[request.after];
        if (ended < 0 || ended + request.gap > step_) return false;
      }
      const int32_t handle = scheduler_.submit(
          {r, -1, request.prompt, static_cast<int32_t>(request.output.size()), 0, step_});
      live_[handle] = {r, 0, -1};
      return true;
    });
  }

  void record(const StepPlan& plan) {
    auto& step = out_.steps.emplace_back();
    step.step = step_ - 1;
    for (const auto& segment : plan.segments) {
      auto& live = live_.at(segment.handle);
      step.rows.push_back({live.request, segment.first_position, segment.num_rows});
      if (segment.first_position != live.computed) {  // admitted in this step
        out_.hit_tokens += segment.first_position;
      }
      if (out_.first_hits[live.request] < 0) {
        out_.first_hits[live.request] = segment.first_position;
      }
      live.computed = segment.first_position + segment.num_rows;
    }
  }

  void commit(const StepPlan& plan, double (*now_us)()) {
    results_.clear();
    for (const auto& sample : plan.samples) {
      auto& live = live_.at(sample.handle);
      const auto& output = trace_.requests[live.request].output;
      results_.push_back({output[live.made++], false});
      if (live.made == static_cast<int32_t>(output.size())) {
        ended_[live.request] = step_;
        live_.erase(sample.handle);
      }
    }
    const double start = now_us ? now_us() : 0;
    scheduler_.commit(results_);
    if (now_us) out_.plan_us += now_us() - start;
  }

  struct Live {
    int32_t request = 0;
    int32_t made = 0;
    int32_t computed = -1;
  };

  const TraceCase& trace_;
  Scheduler scheduler_;
  TraceReplay out_;
  std::vector<int64_t> ended_;  // step, or -1
  std::vector<int32_t> todo_;
  std::unordered_map<int32_t, Live> live_;
  std::vector<SampleResult> results_;
  int64_t step_ = 0;
};

}  // namespace

int64_t TraceReplay::first_hit_tokens() const {
  int64_t sum = 0;
  for (const int32_t hit : first_hits) sum += std::max(0, hit);
  return sum;
}

TraceReplay replay_trace(const TraceCase& trace, int32_t pool_blocks, double (*now_us)()) {
  return Replay(trace, pool_blocks).run(now_us);
}

TraceCase trace_case(const OrderedJson& row) {
  TraceCase trace;
  try {
    trace.token_budget = row.at("token_budget");
    trace.max_seqs = row.at("max_num_seqs");
    KEEL_REQUIRE(row.at("block_size") == kBlockTokens, "[kv_traces] expected block_size {}, got {}",
                 kBlockTokens, row.at("block_size").dump());
    for (const auto& r : row.at("requests")) {
      auto& request = trace.requests.emplace_back();
      request.arrival = r.at("arrival");
      if (!r.at("after").is_null()) request.after = r.at("after");
      request.gap = r.at("gap");
      for (const auto& piece : r.at("prompt")) append_piece(piece, request.prompt);
      append_piece(r.at("output"), request.output);
      KEEL_REQUIRE(request.after < static_cast<int32_t>(trace.requests.size()) - 1,
                   "[kv_traces] expected `after` to name an earlier request, got {}",
                   request.after);
      KEEL_REQUIRE(!request.prompt.empty() && !request.output.empty(),
                   "[kv_traces] expected a prompt and an output, got none");
    }
  } catch (const OrderedJson::exception& e) {
    throw_invalid("[kv_traces] expected a case as in the case files' README, got {}", e.what());
  }
  return trace;
}

}  // namespace keel::sched
