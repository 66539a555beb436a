#include "keel/reward/rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>

#include "keel/base/error.h"
#include "keel/base/test_data.h"
#include "keel/reward/math/value.h"

namespace keel {
namespace {

std::string generated(const Json& g) {
  std::string s = g.at("prefix");
  const std::string part = g.at("repeat");
  for (int64_t i = 0; i < g.at("times").get<int64_t>(); ++i) s += part;
  return s + g.at("suffix").get<std::string>();
}

TEST(Rules, PairsOfTheCaseSet) {
  const auto path = test::cases("data/rewards/pairs.jsonl");
  if (path.empty()) GTEST_SKIP() << "no ../shared/cases/data/rewards";
  std::ifstream in(path);
  int num_rows = 0;
  for (std::string line; std::getline(in, line); ++num_rows) {
    auto row = parse_case(line);
    if (row["answer"].is_null()) row["answer"] = generated(row.at("answer_gen"));
    if (row.contains("opt") && row["opt"].is_null()) row.erase("opt");
    const auto begin = std::chrono::steady_clock::now();
    const double got = run_score_case(row.at("rule"), row).at("score");
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
    std::vector<double> fine = {row.at("expected").get<double>()};
    if (row.contains("allowed")) fine = row["allowed"].get<std::vector<double>>();
    EXPECT_TRUE(std::find(fine.begin(), fine.end(), got) != fine.end())
        << "got " << got << " for " << line.substr(0, 300);
    EXPECT_LT(time.count(), row.value("max_ms", 100)) << line.substr(0, 300);
  }
  EXPECT_GE(num_rows, 1100);
}

struct Pair {
  const char* answer;
  const char* truth;
  bool same;
};

TEST(Rules, MathValues) {
  const Pair pairs[] = {
      {"\\sqrt{2}\\cdot\\sqrt{2}", "2", true},
      {"1.41421356237309504880168872420969807857", "\\sqrt{2}", false},  // a rounded root
      {"\\sqrt{3+2\\sqrt{2}}", "1+\\sqrt{2}", true},
      {"\\sin 30^\\circ", "\\frac12", true},
      {"\\sqrt[3]{-8}", "-2", true},
      {"x\\in(1,2)", "(1,2)", true},
      {"y > 2", "x > 2", false},
      {"2x+4y=6", "x+2y=3", true},
      {"2x+4y=6", "x+2y=4", false},
      {"x=\\frac{y}{2}", "y=2x", true},
      {"5 apples", "5", true},
      {"25\\text{ cm}^2", "25\\text{ cm}^3", false},
      {"\\{(1,2),(3,4)\\}", "\\{(3,4),(1,2)\\}", true},
      {"(1,2),(3,4)", "(3,4),(1,2)", true},
      {"[1,2]\\cup\\{5\\}", "\\{5\\}\\cup[1,2]", true},
      {"\\infty", "\\infty", true},
      {"-\\infty", "\\infty", false},
      {"|{-3}|", "3", true},
      {"10^10", "10000000000", true},
      {"1.2e3", "1200", true},
      {"2^{2^{2}}", "16", true},
      {"a_1+a_2", "a_2+a_1", true},
      {"a_1", "a_2", false},
      {"\\frac{\\pi}{2}", "1.5707963267948966", false},
      {"2 3", "6", false},
      {"\\frac{1}{2", "\\frac{1}{2", false},
      {"-2^2", "-4", true},
      {"\\alpha\\beta", "\\beta\\alpha", true},
      {"even", "\\text{ Even. }", true},
      {"0.1\\overline{6}", "\\frac16", true},
      {"10!/(8!)", "90", true},
      {"5, 3", "3,5", true},
      {"5,300", "5300", true},
      {"\\{5,300\\}", "\\{300,5\\}", true},
      {"", "", false},
  };
  for (const auto& p : pairs) {
    EXPECT_EQ(math::same_value(p.answer, p.truth), p.same) << p.answer << " | " << p.truth;
  }
}

TEST(Rules, LastNumber) {
  const Pair pairs[] = {
      {"7 + 5 = 12", "12", true}, {"12.", "12", true},        {"about -3", "-3", true},
      {"from 5-12", "12", true},  {"1,234 and 5", "5", true}, {"it is 1,234.50!", "1234.5", true},
      {"3,12", "12", true},       {"none", "12", false},      {"12,345,678", "12345678", true},
      {"a-12", "12", true},       {"", "12", false},
  };
  for (const auto& p : pairs)
    EXPECT_EQ(score("last_number", p.answer, p.truth), p.same) << p.answer;
}

TEST(Rules, FormatAndExactMatch) {
  EXPECT_EQ(score("format", "<think>a</think> b", ""), 1);
  EXPECT_EQ(score("format", "a</think> b", ""), 1);
  EXPECT_EQ(score("format", "<think>a</think>  ", ""), 0);
  EXPECT_EQ(score("format", "x <think>a</think> b", ""), 0);
  EXPECT_EQ(score("format", "<think>a</think><think>b</think> c", ""), 0);
  EXPECT_EQ(score("format", "<a>1</a>", "", {.pattern = "<a>\\d+</a>"}), 1);
  EXPECT_EQ(score("format", "<a>1</a>x", "", {.pattern = "<a>\\d+</a>"}), 0);
  EXPECT_THROW(score("format", "a", "", {.pattern = "("}), Error);
  EXPECT_EQ(score("exact_match", " yes\n", "yes"), 1);
  EXPECT_EQ(score("exact_match", "Yes", "yes"), 0);
  EXPECT_EQ(score("exact_match", "", ""), 0);
}

TEST(Rules, UnknownNameOffersTheNearest) {
  try {
    score("math_equi", "a", "b");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("did you mean 'math_equiv'?"), std::string::npos)
        << e.what();
  }
}

TEST(Rules, DataSources) {
  EXPECT_EQ(rule_for_data_source("openai/gsm8k"), "gsm8k_strict");
  EXPECT_EQ(rule_for_data_source("math_dapo"), "dapo");
  EXPECT_EQ(rule_for_data_source("my/unknown_set"), "");
  for (const auto* source : {"openai/gsm8k", "math", "aime2024"})
    require_rule(rule_for_data_source(source));
}

}  // namespace
}  // namespace keel
