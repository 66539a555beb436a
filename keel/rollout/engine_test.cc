#include "keel/rollout/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "keel/base/error.h"
#include "keel/rollout/fake_runner.h"

namespace keel::rollout {
namespace {

using test::FakeRunner;

// Token 10 is 'k', except that 0 and 1 are the two halves of "é".
class Letters : public TextStream {
 public:
  std::string push(int32_t id) override {
    if (id == 0) return half_ = "\xC3", "";
    std::string text = id == 1 && !half_.empty() ? half_ + "\xA9" : std::string(1, 'a' + id);
    half_.clear();
    return text;
  }

 private:
  std::string half_;
};

TextStreamFactory letters() {
  return [] { return std::make_unique<Letters>(); };
}

struct Options {
  EngineConfig config;
  int32_t num_blocks = 400;
  std::vector<int32_t> eos_ids = {3};
};

struct Made {
  std::unique_ptr<Engine> engine;
  FakeRunner* runner = nullptr;
};

Made make(const Options& options) {
  auto runner = std::make_unique<FakeRunner>(options.num_blocks);
  auto* raw = runner.get();
  return {std::make_unique<Engine>(options.config, std::move(runner), options.eos_ids, letters()),
          raw};
}

// 8 groups of 4 and 8 loners with mixed parameters.
std::vector<Request> mixed_requests() {
  std::mt19937 rng(4);
  std::vector<Request> requests;
  for (int64_t g = 0; g < 16; ++g) {
    std::vector<int32_t> prompt(1 + rng() % 60);
    for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = (g % 3 + i) % FakeRunner::kVocab;
    for (int m = 0; m < (g < 8 ? 4 : 1); ++m) {
      Request r;
      r.id = static_cast<int64_t>(requests.size());
      r.group = g < 8 ? g : -1;
      r.prompt_ids = prompt;
      r.params.max_new_tokens = 1 + rng() % 50;
      r.params.seed = 1000 + r.id;
      r.params.temperature = g % 2 ? 1.0f : 0.7f;
      r.params.top_k = g % 3 == 0 ? 5 : 0;
      if (g % 4 == 0) r.params.stop_strings = {"fg", "\xC3\xA9"};
      if (g % 5 == 0) r.params.stop_ids = {7, 8};
      r.params.ignore_eos = g % 4 == 1;
      requests.push_back(r);
    }
  }
  return requests;
}

void expect_equal(const std::vector<Sample>& a, const std::vector<Sample>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].id, b[i].id);
    ASSERT_EQ(a[i].ids, b[i].ids) << "request " << i;
    ASSERT_EQ(a[i].log_probs, b[i].log_probs);
    ASSERT_EQ(a[i].entropies, b[i].entropies);
    ASSERT_EQ(a[i].kept_ids, b[i].kept_ids);
    ASSERT_EQ(a[i].kept_offsets, b[i].kept_offsets);
    ASSERT_EQ(a[i].stop_reason, b[i].stop_reason);
  }
}

TEST(Engine, SamplesDoNotDependOnSlotsChunksPoolCacheOrOrder) {
  const auto expected = make({}).engine->generate(mixed_requests());
  int64_t preemptions = 0;
  for (const int32_t slots : {1, 3, 64}) {
    for (const int32_t chunk : {0, 1, 7, 16}) {
      for (const int32_t blocks : {8, 20, 400}) {
        for (const bool cache : {true, false}) {
          Options options;
          options.config.max_seqs = slots;
          options.config.step_tokens = chunk == 0 ? 2048 : std::max(slots, 30);
          options.config.chunk_tokens = chunk;
          options.config.prefix_cache = cache;
          options.config.max_preemptions = chunk == 7 ? 0 : 3;
          options.num_blocks = blocks;
          auto [engine, runner] = make(options);
          auto requests = mixed_requests();
          std::shuffle(requests.begin(), requests.end(), std::mt19937(slots + chunk));
          auto samples = engine->generate(requests);
          std::sort(samples.begin(), samples.end(),
                    [](const auto& x, const auto& y) { return x.id < y.id; });
          expect_equal(samples, expected);
          ASSERT_FALSE(::testing::Test::HasFatalFailure())
              << slots << " slots, chunk " << chunk << ", " << blocks << " blocks";
          preemptions += engine->stats().num_preemptions;
        }
      }
    }
  }
  EXPECT_GT(preemptions, 50);
}

TEST(Engine, RecordIsComplete) {
  const auto requests = mixed_requests();
  const auto samples = make({}).engine->generate(requests);
  int kinds[4] = {};
  for (size_t i = 0; i < samples.size(); ++i) {
    const auto& s = samples[i];
    const auto& p = requests[i].params;
    const size_t n = s.answer().size();
    ASSERT_GE(n, 1u);
    EXPECT_EQ(s.num_prompt, static_cast<int32_t>(requests[i].prompt_ids.size()));
    EXPECT_EQ(s.log_probs.size(), n);
    EXPECT_EQ(s.entropies.size(), n);
    EXPECT_EQ(s.loss_mask, std::vector<uint8_t>(n, 1));
    EXPECT_EQ(s.versions, (std::vector<VersionSpan>{{0, 0, static_cast<int32_t>(n)}}));
    EXPECT_EQ(s.numerics_id, "fake-1");
    EXPECT_EQ(s.kept_offsets.size(), p.top_k > 0 ? n + 1 : 0);
    EXPECT_EQ(s.kept_ids.size(), n * p.top_k);
    if (s.stop_reason == StopReason::kEos) {
      EXPECT_EQ(s.ids.back(), 3);
      EXPECT_FALSE(p.ignore_eos);
    } else if (s.stop_reason == StopReason::kLength) {
      EXPECT_EQ(static_cast<int32_t>(n), p.max_new_tokens);
    }
    ++kinds[static_cast<int>(s.stop_reason)];
  }
  EXPECT_GT(kinds[0], 0);
  EXPECT_GT(kinds[1], 0);
  EXPECT_GT(kinds[2], 0);
}

TEST(Engine, SeedsOfGroupMembersMatterAndNothingElse) {
  auto requests = mixed_requests();
  requests.resize(4);
  requests[1].params = requests[0].params;
  const auto samples = make({}).engine->generate(requests);
  EXPECT_EQ(samples[0].ids, samples[1].ids);
  EXPECT_NE(samples[0].ids, samples[2].ids);
  Options other;
  other.config.seed = 1;
  EXPECT_NE(make(other).engine->generate(requests)[0].ids, samples[0].ids);
}

// Answers token by token what a script says, through the real engine.
std::vector<Sample> scripted(const std::vector<int32_t>& script, SamplingParams params,
                             std::vector<int32_t> eos_ids = {3}) {
  class Script : public FakeRunner {
   public:
    explicit Script(std::vector<int32_t> ids) : FakeRunner(50), ids_(std::move(ids)) {}
    void run(const RunnerBatch&, std::span<ops::SampledToken> out) override {
      for (auto& o : out) o = {ids_[next_++ % ids_.size()], -1.0f, 1.0f, {}};
    }

   private:
    std::vector<int32_t> ids_;
    size_t next_ = 0;
  };
  Engine engine({}, std::make_unique<Script>(script), std::move(eos_ids), letters());
  Request r;
  r.prompt_ids = {3, 5, 6};  // an end-of-sequence id and a stop id in the prompt mean nothing
  r.params = std::move(params);
  return engine.generate({r});
}

std::vector<int32_t> answer_of(const Sample& s) { return {s.answer().begin(), s.answer().end()}; }

TEST(Engine, StopIdsAndEndOfSequence) {
  SamplingParams p;
  p.max_new_tokens = 6;
  auto s = scripted({5, 3, 5}, p)[0];
  EXPECT_EQ(answer_of(s), (std::vector<int32_t>{5, 3}));
  EXPECT_EQ(s.stop_reason, StopReason::kEos);
  s = scripted({5, 4, 5}, p, {3, 4})[0];
  EXPECT_EQ(answer_of(s), (std::vector<int32_t>{5, 4})) << "second of two ids";
  s = scripted({0, 5, 5}, p, {})[0];
  EXPECT_EQ(s.stop_reason, StopReason::kLength) << "no end-of-sequence id means none, not 0";
  p.stop_ids = {6, 3};
  s = scripted({5, 6, 5}, p)[0];
  EXPECT_EQ(s.stop_reason, StopReason::kStop);
  p.ignore_eos = true;
  s = scripted({5, 3, 5}, p)[0];
  EXPECT_EQ(s.stop_reason, StopReason::kStop) << "a stop id stops though it is an ignored eos";
  p.stop_ids = {};
  s = scripted({5, 3, 5}, p)[0];
  EXPECT_EQ(s.stop_reason, StopReason::kLength);
  EXPECT_EQ(s.answer().size(), 6u);
}

TEST(Engine, StopStringsSpanTokensAndKeepThem) {
  SamplingParams p;
  p.max_new_tokens = 9;
  p.stop_strings = {"xyz", "fgh"};
  auto s = scripted({5, 5, 6, 7, 8, 9}, p)[0];
  EXPECT_EQ(answer_of(s), (std::vector<int32_t>{5, 5, 6, 7}));
  EXPECT_EQ(s.stop_reason, StopReason::kStop);
  p.stop_strings = {"\xC3\xA9"};
  s = scripted({5, 0, 1, 9}, p)[0];
  EXPECT_EQ(answer_of(s), (std::vector<int32_t>{5, 0, 1})) << "a character over two tokens";
  p.stop_strings = {"df"};  // the prompt ends in "fg": only the answer counts
  s = scripted({6, 9, 9}, p)[0];
  EXPECT_EQ(s.stop_reason, StopReason::kLength);
}

TEST(Engine, AbortDeliversWhatThereIs) {
  auto [engine, runner] = make({});
  auto requests = mixed_requests();
  for (int i = 8; i < 12; ++i) {
    requests[i].params.max_new_tokens = 40;
    requests[i].params.ignore_eos = true;
    requests[i].params.stop_ids = {};
    requests[i].params.stop_strings = {};
    engine->submit(requests[i]);
  }
  EXPECT_TRUE(engine->abort(8));  // before its first token
  for (int i = 0; i < 3; ++i) engine->step();
  EXPECT_TRUE(engine->abort(9));
  EXPECT_FALSE(engine->abort(9));
  EXPECT_FALSE(engine->abort(77));
  const auto samples = engine->take_finished();
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].answer().size(), 0u);
  EXPECT_EQ(samples[1].answer().size(), 3u);
  EXPECT_EQ(samples[1].versions, (std::vector<VersionSpan>{{0, 0, 3}}));
  EXPECT_EQ(samples[1].stop_reason, StopReason::kAbort);
  while (engine->has_work()) engine->step();
  EXPECT_EQ(engine->take_finished().size(), 2u);
  EXPECT_EQ(engine->stats().num_running, 0);
}

TEST(Engine, NewWeightsMidwayMakeTwoSpansAndFreshKv) {
  SamplingParams p;
  p.max_new_tokens = 30;
  p.ignore_eos = true;
  std::vector<Request> requests(4);
  for (int i = 0; i < 4; ++i) {
    requests[i].id = i;
    requests[i].group = 1;
    requests[i].prompt_ids.assign(21, 2);
    requests[i].params = p;
    requests[i].params.seed = i;
  }
  auto [engine, runner] = make({});
  for (const auto& r : requests) engine->submit(r);
  for (int i = 0; i < 10; ++i) engine->step();
  runner->set_weight_version(4);
  while (engine->has_work()) engine->step();
  auto samples = engine->take_finished();
  // The tail must be what a fresh engine with the new weights says after the same ids.
  auto [fresh, fresh_runner] = make({});
  fresh_runner->set_weight_version(4);
  for (auto& s : samples) {
    EXPECT_EQ(s.versions, (std::vector<VersionSpan>{{0, 0, 10}, {4, 10, 30}}));
    Request r;
    r.prompt_ids.assign(s.ids.begin(), s.ids.begin() + 31);
    r.params = s.params;
    r.params.max_new_tokens = 20;
    EXPECT_EQ(fresh->generate({r})[0].ids, s.ids);
  }
}

TEST(Engine, ProgressCountsAndCanStop) {
  auto [engine, runner] = make({});
  int64_t last = -1;
  auto samples = engine->generate(mixed_requests(), [&](int64_t done, int64_t total, int64_t n) {
    EXPECT_GE(done, last);
    EXPECT_EQ(total, 40);
    last = done;
    return n < 100;
  });
  ASSERT_EQ(samples.size(), 40u);
  int aborted = 0;
  for (const auto& s : samples) aborted += s.stop_reason == StopReason::kAbort;
  EXPECT_GT(aborted, 0);
  EXPECT_FALSE(engine->has_work());
}

TEST(Engine, WrongRequestsAreNamedAndLeaveTheEngineUsable) {
  auto [engine, runner] = make({});
  Request good;
  good.prompt_ids = {1, 2};
  const auto bad = [&, e = engine.get()](auto change) {
    Request r = good;
    change(r);
    EXPECT_THROW(e->submit(r), Error);
  };
  bad([](Request& r) { r.prompt_ids.clear(); });
  bad([](Request& r) { r.prompt_ids.push_back(FakeRunner::kVocab); });
  bad([](Request& r) { r.params.temperature = -1; });
  bad([](Request& r) { r.params.top_p = 0; });
  bad([](Request& r) { r.params.top_k = -1; });
  bad([](Request& r) { r.params.min_p = 1.5; });
  bad([](Request& r) { r.params.max_new_tokens = 0; });
  bad([](Request& r) { r.params.max_new_tokens = 999; });
  bad([](Request& r) { r.params.stop_strings = {""}; });
  EXPECT_THROW(engine->generate({good, good}), Error) << "equal ids";
  EXPECT_FALSE(engine->has_work());
  EXPECT_EQ(engine->generate({good}).size(), 1u);
  Engine textless({}, std::make_unique<FakeRunner>(10), {3});
  good.params.stop_strings = {"x"};
  EXPECT_THROW(textless.submit(good), Error);
}

}  // namespace
}  // namespace keel::rollout
