#include "keel/cli/app.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <set>
#include <system_error>

#include "keel/base/error.h"
#include "keel/base/json.h"
#include "keel/cli/doctor.h"
#include "keel/cli/interrupt.h"
#include "keel/cli/model_path.h"
#include "keel/cli/verbs.h"

namespace keel::cli {
namespace {

struct Output {
  int code;
  std::string out, err;
};

Output run(std::vector<std::string> args) {
  std::vector<const char*> argv = {"keel"};
  for (const auto& a : args) argv.push_back(a.c_str());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Output o;
  o.code = run_program(static_cast<int>(argv.size()), argv.data());
  std::fflush(stdout);
  o.out = testing::internal::GetCapturedStdout();
  o.err = testing::internal::GetCapturedStderr();
  return o;
}

int guarded(const std::function<int()>& body, std::string* err = nullptr) {
  testing::internal::CaptureStderr();
  const int code = run_guarded(body);
  const std::string text = testing::internal::GetCapturedStderr();
  if (err) *err = text;
  return code;
}

TEST(App, HelpListsEveryVerbAndEachHasAnExample) {
  const Output top = run({"--help"});
  EXPECT_EQ(top.code, 0);
  EXPECT_EQ(run({}).out, top.out);
  for (const char* code : {"2 wrong input", "3 no memory or disk", "130 interrupted"})
    EXPECT_NE(top.out.find(code), std::string::npos) << top.out;
  for (const Verb& v : verbs()) {
    EXPECT_NE(top.out.find(v.help), std::string::npos) << v.name;
    const Output help = run({v.name, "--help"});
    EXPECT_EQ(help.code, 0);
    EXPECT_NE(help.out.find(std::string("Usage: ") + v.usage), std::string::npos) << help.out;
    EXPECT_NE(help.out.find(v.example), std::string::npos) << v.name;
    EXPECT_NE(std::string(v.example).find(std::string("keel ") + v.name), std::string::npos)
        << v.name;
  }
  EXPECT_TRUE(run({"--version"}).out.starts_with("keel 0."));
}

TEST(App, WrongUsageIsOneLineAndCode2) {
  const Output verb = run({"confg"});
  EXPECT_EQ(verb.code, 2);
  EXPECT_EQ(verb.err, "keel: [keel] expected a verb, got confg; try 'keel config'\n");
  const Output option = run({"doctor", "--jsn"});
  EXPECT_EQ(option.code, 2);
  EXPECT_EQ(std::count(option.err.begin(), option.err.end(), '\n'), 1) << option.err;
  EXPECT_NE(option.err.find("--jsn"), std::string::npos);
}

TEST(App, ExitCodesByKindOfFailure) {
  std::string err;
  EXPECT_EQ(guarded([] { return 0; }), 0);
  EXPECT_EQ(guarded([]() -> int { throw Error(ErrorKind::kInvalid, "[x] y"); }, &err), 2);
  EXPECT_EQ(err, "keel: [x] y\n");
  EXPECT_EQ(guarded([]() -> int { throw Error(ErrorKind::kResource, "full"); }), 3);
  EXPECT_EQ(guarded([]() -> int { throw Error(ErrorKind::kPeer, "rank 1"); }), 4);
  EXPECT_EQ(guarded([]() -> int { throw Error(ErrorKind::kInterrupted, "saved"); }), 130);
  EXPECT_EQ(guarded([]() -> int { throw std::bad_alloc(); }), 3);
  EXPECT_EQ(guarded([]() -> int {
              throw std::filesystem::filesystem_error(
                  "write", std::make_error_code(std::errc::no_space_on_device));
            }),
            3);
  EXPECT_EQ(guarded([]() -> int { throw std::runtime_error("can't allocate memory: 1 PiB"); }), 3);
  EXPECT_EQ(guarded([]() -> int { KEEL_CHECK(1 + 1 == 3, "sum"); }, &err), 1);
  EXPECT_NE(err.find("bug"), std::string::npos);
  EXPECT_EQ(guarded([]() -> int { throw std::logic_error("odd"); }), 1);
}

TEST(Config, ShowsOptionsWithOrigin) {
  const Output plain = run({"config"});
  EXPECT_EQ(plain.code, 0) << plain.err;
  EXPECT_NE(plain.out.find("\nrollout: "), std::string::npos);
  const Output json = run({"config", "rollout.n=16", "--json"});
  EXPECT_EQ(json.code, 0) << json.err;
  bool found = false;
  const Json parsed = Json::parse(json.out);
  for (const Json& o : parsed["options"]) {
    if (o["key"] != "rollout.n") continue;
    found = true;
    EXPECT_EQ(o["value"], "16");
    EXPECT_EQ(o["default"], "8");
    EXPECT_EQ(o["origin"], "override");
  }
  EXPECT_TRUE(found);
  const Output bad = run({"config", "rollout.m=16"});
  EXPECT_EQ(bad.code, 2);
  EXPECT_EQ(bad.err,
            "keel: [override rollout.m] expected a known key, got an unknown one; try rollout.n\n");
  EXPECT_EQ(run({"config", "no_such.yaml"}).code, 2);
}

TEST(Config, FileAndOverridesInAnyOrder) {
  const std::string file = testing::TempDir() + "keel_cli_config.yaml";
  std::ofstream(file) << "model: {path: " << testing::TempDir() << "}\n"
                      << "data: {train_files: " << file << "}\nrollout: {n: 4}\n";
  const Output o = run({"config", "trainer.name=x", file, "--yaml"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("\n  n: 4\n"), std::string::npos);
  EXPECT_NE(o.out.find("\n  name: x\n"), std::string::npos);
  const Output again = run({"config", file, "--rollout.n", "5"});
  EXPECT_EQ(again.err, "keel: [override] expected key=value, got --rollout.n; try rollout.n=5\n");
  std::filesystem::remove(file);
}

TEST(Doctor, TellsWhatIsThere) {
  const Output o = run({"doctor", "--json", "--run-dir", testing::TempDir()});
  EXPECT_EQ(o.code, 0) << o.out;
  std::set<std::string> names;
  for (const Json& f : Json::parse(o.out)) {
    names.insert(f["name"]);
    EXPECT_FALSE(f["value"].get<std::string>().empty()) << f;
  }
  for (const char* want : {"processor", "kernels", "memory", "disk", "python3", "model cache"}) {
    EXPECT_TRUE(names.contains(want)) << want;
  }
  EXPECT_GT(usable_memory_bytes(), 100 << 20);
  EXPECT_EQ(format_bytes(1.5 * (1 << 30)), "1.5 GiB");
}

TEST(ModelPath, FindsSnapshotsInTheCache) {
  namespace fs = std::filesystem;
  const fs::path cache = fs::path(testing::TempDir()) / "keel_hf_cache";
  const fs::path snapshot = cache / "models--org--tiny/snapshots/abc";
  fs::create_directories(snapshot);
  ::setenv("HF_HUB_CACHE", cache.c_str(), 1);
  EXPECT_EQ(find_model("org/tiny"), std::nullopt);  // no config.json yet: half a download
  std::ofstream(snapshot / "config.json") << "{}";
  EXPECT_EQ(find_model("org/tiny"), snapshot.string());
  EXPECT_EQ(find_model(snapshot.string()), snapshot.string());
  EXPECT_EQ(find_model("org/other"), std::nullopt);
  EXPECT_EQ(find_model(""), std::nullopt);
  ::unsetenv("HF_HUB_CACHE");
  fs::remove_all(cache);
}

TEST(Interrupt, FirstSignalAsksSecondEnds) {
  EXPECT_EXIT(
      {
        install_interrupt_handler();
        if (interrupted()) _exit(1);
        raise(SIGINT);
        if (!interrupted()) _exit(2);
        raise(SIGINT);
        _exit(3);
      },
      testing::ExitedWithCode(130), "stopping at the next safe point");
}

}  // namespace
}  // namespace keel::cli
