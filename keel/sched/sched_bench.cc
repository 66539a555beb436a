// Cost of the scheduler alone: microseconds of plan() + commit() for one decode step, and of one
// block-pool operation. The bound that matters: a small model decodes one token in 400 us.
#include <fmt/core.h>

#include <chrono>
#include <vector>

#include "keel/sched/scheduler.h"

namespace keel::sched {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds(Clock::time_point since) {
  return std::chrono::duration<double, std::micro>(Clock::now() - since).count();
}

void bench_decode(int32_t batch, int32_t context, bool prefix_cache) {
  constexpr int32_t kSteps = 2000;
  const int32_t blocks = batch * blocks_for(context + kSteps) + 1;
  Scheduler scheduler({.num_blocks = blocks,
                       .max_seqs = batch,
                       .step_tokens = batch * 1024,
                       .prefix_cache = prefix_cache});
  std::vector<int32_t> prompt(context);
  for (int32_t i = 0; i < batch; ++i) {
    for (int32_t t = 0; t < context; ++t) prompt[t] = i * 131 + t;
    scheduler.submit({.id = i, .prompt = prompt, .max_new_tokens = kSteps});
  }
  std::vector<SampleResult> results;
  double decode_us = 0;
  int64_t steps = 0;
  while (scheduler.has_work()) {
    const auto before = Clock::now();
    const auto& plan = scheduler.plan(0);
    const bool decode = static_cast<int32_t>(plan.tokens.size()) == batch;
    results.assign(plan.samples.size(), {7, false});
    scheduler.commit(results);
    if (!decode) continue;
    decode_us += microseconds(before);
    ++steps;
  }
  fmt::print("decode batch {:4}  context {:6}  prefix cache {:3}  {:8.3f} us/step\n", batch,
             context, prefix_cache ? "on" : "off", decode_us / static_cast<double>(steps));
}

void bench_pool() {
  constexpr int kRounds = 20000;
  BlockPool pool(1025);
  std::vector<int32_t> blocks(1024);
  const auto before = Clock::now();
  for (int r = 0; r < kRounds / 10; ++r) {
    for (auto& b : blocks) b = pool.allocate();
    for (const int32_t b : blocks) pool.release(b);
  }
  fmt::print("block pool: {:.4f} us/operation\n",
             microseconds(before) / (kRounds / 10 * 2.0 * 1024));
}

}  // namespace
}  // namespace keel::sched

int main() {
  for (const int32_t batch : {1, 8, 32, 256}) {
    for (const bool cache : {true, false}) keel::sched::bench_decode(batch, 128, cache);
  }
  keel::sched::bench_decode(32, 16384, true);
  keel::sched::bench_pool();
  return 0;
}
