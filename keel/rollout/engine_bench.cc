// Host cost of an engine step with a runner that does nothing: scheduling, batch building, stop
// rules, sample records. Printed beside the 400 us that a small model needs for one token.
#include <fmt/core.h>

#include <chrono>
#include <memory>

#include "keel/rollout/engine.h"
#include "keel/rollout/runner.h"

namespace keel::rollout {
namespace {

class InstantRunner : public Runner {
 public:
  void run(const RunnerBatch&, std::span<ops::SampledToken> out) override {
    for (auto& o : out) o.id = 7;
  }
  int32_t num_blocks() const override { return 40000; }
  int32_t max_positions() const override { return 1 << 20; }
  int32_t vocab_size() const override { return 1000; }
  int64_t weight_version() const override { return 0; }
  std::string numerics_id() const override { return "none"; }
};

void bench(int32_t batch) {
  constexpr int32_t kTokens = 2000;
  EngineConfig config;
  config.max_seqs = batch;
  config.step_tokens = 128 * batch;
  Engine engine(config, std::make_unique<InstantRunner>(), {2});
  for (int32_t i = 0; i < batch; ++i) {
    Request r;
    r.id = i;
    r.prompt_ids.assign(128, i);
    r.params.max_new_tokens = kTokens;
    engine.submit(std::move(r));
  }
  engine.step();
  const auto before = std::chrono::steady_clock::now();
  int64_t steps = 0;
  for (; engine.has_work(); ++steps) engine.step();
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - before;
  const double us = time.count() / static_cast<double>(steps);
  fmt::print("batch {:4}  {:8.3f} us/step  {:6.2f} % of 400 us\n", batch, us, us / 4);
}

}  // namespace
}  // namespace keel::rollout

int main() {
  for (const int32_t batch : {1, 8, 32, 256}) keel::rollout::bench(batch);
  return 0;
}
