#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "keel/base/error.h"
#include "keel/base/thread_pool.h"
#include "keel/cli/verbs.h"
#include "keel/rl/bench.h"
#include "keel/spec/model_name.h"

namespace keel::cli {
namespace {

struct Options {
  std::string kind, model, dtype = "f32";
  std::vector<int64_t> batch = {1, 8, 32}, tokens = {512, 2048};
  int64_t repeats = 5, prompt = 128, new_tokens = 128, prompts = 8, samples = 8;
  int threads = 0;
  bool entropy = false, no_optimizer = false;
};

void print(const OrderedJson& result) {
  fmt::print("{}\n", result.dump());
  std::fflush(stdout);
}

int run(const Options& o) {
  KEEL_REQUIRE(o.dtype == "f32" || o.dtype == "bf16", "[--dtype] expected f32 or bf16, got {}",
               o.dtype);
  if (o.threads > 0) set_num_threads(o.threads);
  print(rl::bench_limits());
  if (o.kind == "limits") return 0;
  KEEL_REQUIRE(!o.model.empty(), "[--model] expected a model folder, got none");
  const rl::BenchOptions b{resolve_model(o.model),
                           o.dtype == "f32" ? ops::DType::kF32 : ops::DType::kBF16, o.repeats};
  if (o.kind == "generate") {
    for (const int64_t n : o.batch) print(rl::bench_generate(b, n, o.prompt, o.new_tokens));
  } else if (o.kind == "train") {
    for (const int64_t n : o.tokens) print(rl::bench_train(b, {n, o.entropy, !o.no_optimizer}));
  } else if (o.kind == "grpo") {
    print(rl::bench_grpo(b, o.prompts, o.samples, o.prompt, o.new_tokens));
  } else {
    throw_invalid("[bench] expected limits, generate, train or grpo, got {}", o.kind);
  }
  print(rl::bench_limits());
  return 0;
}

}  // namespace

Action define_bench(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_option("kind", o->kind, "limits, generate, train or grpo")->required();
  app.add_option("--model", o->model, "model folder");
  app.add_option("--dtype", o->dtype, "f32 or bf16");
  app.add_option("--batch", o->batch, "generate: sequences at once")->delimiter(',');
  app.add_option("--tokens", o->tokens, "train: sequence lengths")->delimiter(',');
  app.add_option("--prompt", o->prompt, "generate, grpo: tokens of a prompt");
  app.add_option("--new", o->new_tokens, "generate, grpo: tokens of an answer");
  app.add_option("--prompts", o->prompts, "grpo: prompts of an iteration");
  app.add_option("--samples", o->samples, "grpo: answers of a prompt");
  app.add_option("--repeats", o->repeats, "measured repeats after one warm-up; 0 = only one, cold");
  app.add_option("--threads", o->threads, "compute threads; 0 = all");
  app.add_flag("--entropy", o->entropy, "train: entropy in the gradient");
  app.add_flag("--no-optimizer", o->no_optimizer, "train: loss and backward alone");
  return [o] { return run(*o); };
}

}  // namespace keel::cli
