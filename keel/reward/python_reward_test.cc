#include "keel/reward/python_reward.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "keel/base/error.h"
#include "keel/reward/shaping.h"

namespace keel {
namespace {

class PythonRewardTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() /
           ("keel_reward_" + std::to_string(getpid()) + "_" +
            testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  PythonRewardOptions options(const std::string& code, const std::string& function = "") {
    std::ofstream(dir_ / "r.py") << code;
    PythonRewardOptions o;
    o.spec = (dir_ / "r.py").string() + (function.empty() ? "" : ":" + function);
    o.timeout_s = 20;
    o.num_workers = 1;
    return o;
  }

  std::string start_error(const PythonRewardOptions& o) {
    try {
      PythonReward reward(o);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }

  std::filesystem::path dir_;
};

std::vector<RewardSample> texts(std::initializer_list<const char*> list) {
  std::vector<RewardSample> out;
  for (const auto* t : list) out.push_back({"src", t, "gt", nullptr, "q", {}, nullptr});
  return out;
}

bool contains(const std::string& s, const std::string& part) {
  return s.find(part) != std::string::npos;
}

TEST_F(PythonRewardTest, VerlSignature) {
  PythonReward r(options(R"(
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    assert data_source == "src" and ground_truth == "gt"
    if solution_str == "d":
        return {"score": True, "acc": 0.5, "pred": "x"}
    return len(solution_str) + (extra_info or {}).get("bonus", 0)
)"));
  EXPECT_EQ(r.convention(), "verl");
  auto samples = texts({"abc", "d", "abcde", "\xC3\xA4"});
  samples[2].extra_info = {{"bonus", 10}};
  const auto got = r.score(samples);
  EXPECT_EQ(got[0].score, 3);
  EXPECT_EQ(got[1].score, 1);
  EXPECT_EQ(got[1].extra.dump(), R"({"acc":0.5,"pred":"x"})");
  EXPECT_EQ(got[2].score, 15);
  EXPECT_EQ(got[3].score, 1);
  EXPECT_EQ(r.counts().num_exceptions, 0);
}

TEST_F(PythonRewardTest, TrlSignature) {
  auto o = options(R"(
def f(prompts, completions, completion_ids=None, **columns):
    out = []
    for p, c, ids, k in zip(prompts, completions, completion_ids, columns["k"]):
        text = c if isinstance(p, str) else c[0]["content"]
        out.append(None if text == "none" else len(text) + 100 * len(ids) + k)
    return out
)",
                   "f");
  o.batch_samples = 2;
  PythonReward r(o);
  EXPECT_EQ(r.convention(), "trl");
  auto samples = texts({"a", "bb", "none", "dddd", "e"});
  for (auto& s : samples) s.columns = {{"k", 1000}};
  samples[1].token_ids = {5, 6};
  samples[3].prompt = Json::array({Json{{"role", "user"}, {"content", "q"}}});
  const auto got = r.score(samples);
  EXPECT_EQ(got[0].score, 1001);
  EXPECT_EQ(got[1].score, 1202);
  EXPECT_FALSE(got[2].score.has_value());
  EXPECT_TRUE(got[2].error.empty());
  EXPECT_EQ(got[3].score, 1004);
  EXPECT_EQ(got[4].score, 1001);
}

TEST_F(PythonRewardTest, HostileCodeDoesNotStopTheRun) {
  auto o = options(R"(
import os, sys, time
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    if solution_str == "raise":
        raise ValueError("no such thing")
    if solution_str == "loop":
        while True: pass
    if solution_str == "fork":
        os.fork()
        return 2
    if solution_str == "forkloop":
        if os.fork() == 0:
            while True: time.sleep(1)
        while True: time.sleep(1)
    if solution_str == "print":
        print("x" * 1000000); sys.stderr.write("y" * 1000000); os.write(1, b"\x01\x00\x00\x00z")
        return 3
    if solution_str == "exit": sys.exit(3)
    if solution_str == "die": os._exit(4)
    if solution_str == "kill": os.kill(os.getpid(), 11)
    if solution_str == "nan": return float("nan")
    if solution_str == "text": return "many"
    if solution_str == "close": os.closerange(0, 10)
    if solution_str == "deep":
        def f(n): return f(n + 1)
        return f(0)
    return 1
)");
  o.num_workers = 2;
  o.timeout_s = 1;
  o.default_score = -7;
  PythonReward r(o);
  const auto samples = texts({"ok", "raise", "loop", "fork", "print", "exit", "die", "kill", "nan",
                              "text", "close", "deep", "forkloop", "ok"});
  const auto begin = std::chrono::steady_clock::now();
  const auto got = r.score(samples);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
  const double want[] = {1, -7, -7, 2, 3, -7, -7, -7, -7, -7, -7, -7, -7, 1};
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_EQ(got[i].score, want[i]) << samples[i].solution << got[i].error;
  EXPECT_TRUE(contains(got[1].error, "ValueError: no such thing (r.py:5)")) << got[1].error;
  EXPECT_TRUE(contains(got[2].error, "took more than 1 s")) << got[2].error;
  EXPECT_TRUE(contains(got[6].error, "exit code 4")) << got[6].error;
  EXPECT_TRUE(contains(got[7].error, "signal 11")) << got[7].error;
  EXPECT_EQ(r.counts().num_timeouts, 2);
  EXPECT_EQ(r.counts().num_crashes, 3);
  EXPECT_EQ(r.counts().num_exceptions, 5);
  EXPECT_EQ(r.score(texts({"ok"}))[0].score, 1);
}

TEST_F(PythonRewardTest, WorkerThatDiedBetweenCallsIsReplaced) {
  PythonReward r(options(R"(
import os, signal, threading
def compute_score(solution_str, **kw):
    threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    return 1
)"));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(r.score(texts({"a"}))[0].score, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  EXPECT_EQ(r.counts().num_crashes, 0);
}

// Only the culprit of a batch pays.
TEST_F(PythonRewardTest, BatchWithOneBadSample) {
  PythonReward r(options(R"(
def f(completions, **kw):
    return [1.0 / len(c) for c in completions]
)",
                         "f"));
  const auto got = r.score(texts({"a", "", "bb"}));
  EXPECT_EQ(got[0].score, 1);
  EXPECT_EQ(got[1].score, 0);
  EXPECT_TRUE(contains(got[1].error, "ZeroDivisionError")) << got[1].error;
  EXPECT_EQ(got[2].score, 0.5);
  EXPECT_EQ(r.counts().num_exceptions, 1);
}

TEST_F(PythonRewardTest, PrintsGoToTheLog) {
  auto o = options(
      "def compute_score(solution_str, **kw):\n    print('seen', solution_str)\n    return 1\n");
  o.log_path = dir_ / "log.txt";
  PythonReward(o).score(texts({"abc"}));
  std::ifstream in(o.log_path);
  std::string line;
  std::getline(in, line);
  EXPECT_EQ(line, "seen abc");
}

TEST_F(PythonRewardTest, AsyncAndLargeTexts) {
  PythonReward r(
      options("async def compute_score(solution_str, **kw):\n    return len(solution_str)\n"));
  std::vector<RewardSample> samples(4);
  for (auto& s : samples) s.solution = std::string(500000, 'x');
  for (const auto& got : r.score(samples)) EXPECT_EQ(got.score, 500000);
}

TEST_F(PythonRewardTest, BadFilesAreRefusedAtTheStart) {
  EXPECT_TRUE(contains(start_error(options("def compute_score(:\n")), "SyntaxError"));
  EXPECT_TRUE(contains(start_error(options("import no_such_module_xyz\n")), "no_such_module_xyz"));
  EXPECT_TRUE(
      contains(start_error(options("def other(solution_str): pass\n")), "the file defines other"));
  EXPECT_TRUE(
      contains(start_error(options("def compute_score(a, b): pass\n")), "function of (a, b)"));
  EXPECT_TRUE(contains(start_error(options("import os\nos._exit(5)\n")), "exit code 5"));
  auto slow = options("import time\ntime.sleep(100)\n");
  slow.start_timeout_s = 0.3;
  EXPECT_TRUE(contains(start_error(slow), "loading took more than"));
  auto missing = options("");
  missing.spec = "/no/such.py:f";
  EXPECT_TRUE(contains(start_error(missing), "expected a Python file"));
  auto python = options("def compute_score(solution_str): return 1\n");
  python.python = "/no/such/python";
  EXPECT_TRUE(contains(start_error(python), "cannot start"));
}

TEST(Shaping, SoftOverlongPenalty) {
  const OverlongPenalty p{100, 20, 0.5};
  EXPECT_EQ(overlong_penalty(p, 80), 0);
  EXPECT_EQ(overlong_penalty(p, 90), -0.25);
  EXPECT_EQ(overlong_penalty(p, 100), -0.5);
  EXPECT_EQ(overlong_penalty(p, 500), -0.5);
  EXPECT_THROW(overlong_penalty({100, 0, 1}, 5), Error);
}

}  // namespace
}  // namespace keel
