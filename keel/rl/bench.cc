#include "keel/rl/bench.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "keel/base/cpu.h"
#include "keel/base/rng.h"
#include "keel/base/thread_pool.h"
#include "keel/model/load.h"
#include "keel/ops/bench_limits.h"
#include "keel/rl/advantages.h"
#include "keel/rl/update.h"
#include "keel/rollout/engine.h"
#include "keel/rollout/model_runner.h"

namespace keel::rl {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The first repeat, unless it is the only one.
bool is_warm_up(int64_t repeat, const BenchOptions& o) { return repeat == 0 && o.repeats > 0; }

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

std::unique_ptr<model::Model> load(const BenchOptions& o) {
  return model::load_model(ModelDir(o.model), o.dtype);
}

std::vector<int32_t> random_ids(int64_t count, int64_t vocab, uint64_t key) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<int32_t>(
        4 + uniform_int(static_cast<uint64_t>(vocab - 4), key, static_cast<uint64_t>(i))));
  }
  return ids;
}

rollout::Engine make_engine(model::Model& model, int64_t sequences, int64_t longest) {
  rollout::EngineConfig config;
  config.max_seqs = static_cast<int32_t>(sequences);
  config.step_tokens = static_cast<int32_t>(std::max<int64_t>(1024, sequences));
  config.prefix_cache = false;
  return rollout::Engine(config,
                         std::make_unique<rollout::ModelRunner>(
                             model, rollout::KvConfig{}, sequences * (longest + 16), "bench"),
                         {});
}

std::vector<rollout::Request> make_requests(int64_t groups, int64_t n, int64_t prompt,
                                            int64_t new_tokens, int64_t vocab, uint64_t key) {
  std::vector<rollout::Request> out;
  for (int64_t g = 0; g < groups; ++g) {
    const auto ids = random_ids(prompt, vocab, mix_key(key, static_cast<uint64_t>(g)));
    for (int64_t j = 0; j < n; ++j) {
      rollout::Request r;
      r.id = g * n + j;
      r.group = g;
      r.prompt_ids = ids;
      r.params.max_new_tokens = static_cast<int32_t>(new_tokens);
      r.params.ignore_eos = true;
      r.params.seed = mix_key(key, static_cast<uint64_t>(r.id) + 1000);
      out.push_back(std::move(r));
    }
  }
  return out;
}

OrderedJson common(const char* what, const BenchOptions& o) {
  return {{"bench", what},
          {"model", o.model},
          {"dtype", o.dtype == ops::DType::kF32 ? "f32" : "bf16"},
          {"threads", compute_pool().num_threads()},
          {"repeats", o.repeats}};
}

}  // namespace

OrderedJson bench_limits() {
  const int threads = compute_pool().num_threads();
  return {{"bench", "limits"},
          {"cpu", cpu_model_name()},
          {"threads", threads},
          {"fma_gflops", ops::measure_fma_gflops()},
          {"dram_gbps", ops::measure_dram_read_gb_per_s()}};
}

OrderedJson bench_generate(const BenchOptions& o, int64_t batch, int64_t prompt,
                           int64_t new_tokens) {
  const auto model = load(o);
  auto engine = make_engine(*model, batch, prompt + new_tokens);
  std::vector<double> prefill, decode;
  for (int64_t r = 0; r <= o.repeats; ++r) {
    double times[2] = {};
    for (const bool whole : {false, true}) {
      auto requests = make_requests(batch, 1, prompt, whole ? new_tokens + 1 : 1,
                                    model->spec().vocab, static_cast<uint64_t>(r));
      const auto start = Clock::now();
      engine.generate(std::move(requests));
      times[whole] = seconds_since(start);
    }
    if (is_warm_up(r, o)) continue;
    prefill.push_back(static_cast<double>(batch * prompt) / times[0]);
    decode.push_back(static_cast<double>(batch * new_tokens) / (times[1] - times[0]));
  }
  OrderedJson out = common("generate", o);
  out.update({{"batch", batch},
              {"prompt", prompt},
              {"new", new_tokens},
              {"prefill_tok_s", median(prefill)},
              {"decode_tok_s", median(decode)},
              {"peak_rss_mb", peak_resident_bytes() / 1e6}});
  return out;
}

OrderedJson bench_train(const BenchOptions& o, const TrainBench& work) {
  const auto model = load(o);
  model->make_trainable();
  std::optional<train::AdamW> optimizer;
  if (work.optimizer) optimizer.emplace(model->parameters(), train::AdamWConfig{.lr = 1e-5});
  const auto ids = random_ids(work.tokens, model->spec().vocab, 1);
  PassItem item;
  item.prompt = std::span(ids).first(1);
  item.answer = std::span(ids).subspan(1);
  std::vector<double> times;
  for (int64_t r = 0; r <= o.repeats; ++r) {
    const auto start = Clock::now();
    accumulate_gradients(*model, std::span(&item, 1), {work.tokens, true},
                         [&](std::span<const int32_t>, const TokenValues& v) {
                           const double each = 1.0 / static_cast<double>(v.log_prob.size());
                           return MicroBatchGrads{
                               std::vector<double>(v.log_prob.size(), -each),
                               work.entropy ? std::vector<double>(v.log_prob.size(), -1e-3 * each)
                                            : std::vector<double>{}};
                         });
    if (optimizer) {
      optimizer->step(1.0);
      model->publish();
    } else {
      for (const auto& p : model->parameters()) p->grad_tensor().zero_();
    }
    if (!is_warm_up(r, o)) times.push_back(seconds_since(start));
  }
  OrderedJson out = common("train", o);
  out.update({{"tokens", work.tokens},
              {"entropy_gradient", work.entropy},
              {"optimizer", work.optimizer},
              {"step_s", median(times)},
              {"tok_s", static_cast<double>(work.tokens) / median(times)},
              {"peak_rss_mb", peak_resident_bytes() / 1e6}});
  return out;
}

OrderedJson bench_grpo(const BenchOptions& o, int64_t prompts, int64_t samples, int64_t prompt,
                       int64_t new_tokens) {
  const auto model = load(o);
  model->make_trainable();
  train::AdamW optimizer(model->parameters(), {.lr = 1e-5});
  auto engine = make_engine(*model, prompts * samples, prompt + new_tokens);
  const auto group = parallel::Group::self();
  UpdateConfig update;
  update.pass.micro_batch_tokens = 4096;
  std::vector<double> step_s, generate_s, update_s;
  for (int64_t r = 0; r <= o.repeats; ++r) {
    const auto start = Clock::now();
    auto answers = engine.generate(make_requests(prompts, samples, prompt, new_tokens,
                                                 model->spec().vocab, static_cast<uint64_t>(r)));
    const double generated = seconds_since(start);
    std::vector<Experience> batch(answers.size());
    std::vector<double> rewards;
    std::vector<int64_t> groups, lengths;
    for (size_t i = 0; i < answers.size(); ++i) {
      batch[i].group = answers[i].group;
      batch[i].old_log_prob = answers[i].log_probs;
      batch[i].sample = std::move(answers[i]);
      const auto ids = batch[i].sample.answer();
      rewards.push_back(static_cast<double>(std::count_if(ids.begin(), ids.end(),
                                                          [](int32_t t) { return t % 2 == 0; })) /
                        static_cast<double>(ids.size()));
      groups.push_back(batch[i].group);
      lengths.push_back(std::ssize(ids));
    }
    const auto advantages = compute_advantages({}, rewards, groups, lengths);
    std::vector<const Experience*> all;
    for (size_t i = 0; i < batch.size(); ++i) {
      batch[i].advantage = advantages[i];
      all.push_back(&batch[i]);
    }
    update_policy(*model, optimizer, *group, all, update, 1.0);
    const double total = seconds_since(start);
    if (is_warm_up(r, o)) continue;
    step_s.push_back(total);
    generate_s.push_back(generated);
    update_s.push_back(total - generated);
  }
  OrderedJson out = common("grpo", o);
  out.update({{"prompts", prompts},
              {"samples", samples},
              {"prompt", prompt},
              {"new", new_tokens},
              {"step_s", median(step_s)},
              {"generate_s", median(generate_s)},
              {"update_s", median(update_s)},
              {"peak_rss_mb", peak_resident_bytes() / 1e6}});
  return out;
}

}  // namespace keel::rl
