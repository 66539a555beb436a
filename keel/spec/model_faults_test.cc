// Makes a good model folder, breaks it in every way that the case list knows, and compares the
// findings. Needs python3 (standard library only) and the case folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>

#include "keel/base/json.h"
#include "keel/base/test_data.h"
#include "keel/io/test_util.h"
#include "keel/spec/model_dir.h"

namespace keel {
namespace {

using test::TempFolder;

bool run(const std::string& command) {
  return std::system((command + " > /dev/null 2>&1").c_str()) == 0;
}

std::string all_lines(const std::vector<Finding>& findings) {
  std::string out;
  for (const auto& f : findings) {
    out +=
        fmt::format("  {} {} {}\n", f.level == Level::kError ? "error" : "warn", f.kind, f.line());
  }
  return out;
}

// The word that the message must contain for `where` of the case list; "" for whole folders.
std::string expected_place(const std::string& where) {
  if (where == "first shard" || where == "second shard") return ".safetensors";
  if (where == "directory" || where == "pytorch_model.bin") return "";
  if (where == "model.layers.99.*") return "model.layers.99.";
  const auto colon = where.find(": ");
  const std::string item = colon == std::string::npos ? where : where.substr(colon + 2);
  return item == "rope_scaling" ? "rope" : item == "architectures" ? "config.json" : item;
}

void check_case(const Json& expected, const std::vector<Finding>& findings) {
  const std::string level = expected["level"];
  std::set<std::string> kinds = {expected["kind"].get<std::string>()};
  for (const auto& k : expected["also_ok"]) kinds.insert(k.get<std::string>());
  const std::string context = expected.dump() + "\n" + all_lines(findings);
  for (const auto& f : findings) {
    EXPECT_EQ(f.line().find('\n'), std::string::npos) << context;
    EXPECT_TRUE(f.message.starts_with("expected ") || f.message.starts_with("cannot ")) << context;
  }
  if (level == "ok" || level == "ok_or_error") {  // a note is welcome for the second
    EXPECT_FALSE(has_errors(findings)) << context;
    EXPECT_TRUE(level != "ok" || findings.empty()) << context;
    return;
  }
  EXPECT_FALSE(level == "warn" && has_errors(findings)) << context;
  const std::string place = expected_place(expected["where"]);
  const bool found = std::ranges::any_of(findings, [&](const Finding& f) {
    const bool level_fits =
        level == "warn_or_error" || (f.level == Level::kError) == (level == "error");
    return level_fits && kinds.contains(f.kind) && f.line().find(place) != std::string::npos;
  });
  EXPECT_TRUE(found) << context;
}

// Returns how many faults were checked.
int check_all(const std::string& cases, const std::string& make_arguments) {
  TempFolder t;
  const std::string good = t.file("good"), bad = t.file("bad");
  if (!run("python3 " + cases + "/make_tiny_model.py " + good + " " + make_arguments) ||
      !run("python3 " + cases + "/break_model.py " + good + " " + bad + " --all")) {
    return 0;
  }
  const CheckOptions options{.tokenizer = true, .weight_values = true};
  EXPECT_TRUE(check_model_dir(good, options).empty()) << all_lines(check_model_dir(good, options));
  int checked = 0;
  std::ifstream list(cases + "/expected.jsonl");
  for (std::string line; std::getline(list, line);) {
    const Json expected = Json::parse(line);
    const std::string folder = bad + "/" + expected["fault"].get<std::string>();
    if (!std::filesystem::exists(folder)) continue;
    check_case(expected, check_model_dir(folder, options));
    ++checked;
  }
  return checked;
}

TEST(ModelFaults, AllOfTheCaseListAreFound) {
  const auto cases = test::cases("data/models");
  if (cases.empty()) GTEST_SKIP() << "no ../shared/cases/data/models";
  if (!run("python3 --version")) GTEST_SKIP() << "no python3";
  EXPECT_EQ(check_all(cases, "--shards 2"), 68);
}

TEST(ModelFaults, AlsoInOneFileMoeAndBf16) {
  const auto cases = test::cases("data/models");
  if (cases.empty()) GTEST_SKIP() << "no ../shared/cases/data/models";
  if (!run("python3 --version")) GTEST_SKIP() << "no python3";
  EXPECT_GT(check_all(cases, "--shards 1 --moe --dtype BF16"), 50);
  EXPECT_GT(check_all(cases, "--shards 3 --untied --layers 3"), 50);
}

}  // namespace
}  // namespace keel
