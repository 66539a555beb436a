#include "keel/observe/console.h"

#include <gtest/gtest.h>

#include <sstream>

#include "keel/base/log.h"
#include "keel/observe/metric_names.h"

namespace keel {
namespace {

// A console that writes into a temporary file, with a clock that the test moves.
class ConsoleTest : public ::testing::Test {
 protected:
  ConsoleTest() : file_(std::tmpfile()) {}
  ~ConsoleTest() override { std::fclose(file_); }

  ConsoleOptions options(ConsoleOptions::Terminal terminal, int64_t num_steps = 100) {
    ConsoleOptions o;
    o.out = file_;
    o.terminal = terminal;
    o.num_steps = num_steps;
    o.now_s = [this] { return now_s_; };
    return o;
  }
  std::string text() {
    std::string out;
    std::rewind(file_);
    for (int c = std::fgetc(file_); c != EOF; c = std::fgetc(file_)) out += static_cast<char>(c);
    return out;
  }
  std::vector<std::string> lines() {
    std::vector<std::string> out;
    std::istringstream in(text());
    for (std::string line; std::getline(in, line);) out.push_back(line);
    return out;
  }

  std::FILE* file_;
  double now_s_ = 1000;
};

StepRecord full_record(int64_t step) {
  StepRecord r(step);
  r.set(metric::kScoreMean, 0.8125);
  r.set(metric::kAccuracy, 0.75);
  r.set(metric::kResponseMean, 123.44);
  r.set(metric::kEntropy, 0.312);
  r.set(metric::kKlLoss, 1.2e-4);
  r.set(metric::kGradNorm, 0.512);
  r.set(metric::kLearningRate, 1e-5);
  r.set(metric::kThroughput, 1234);
  r.set(metric::kTimeStep, 12.3);
  return r;
}

TEST_F(ConsoleTest, PlainLineHasColumnsAndEta) {
  Console console(options(ConsoleOptions::Terminal::kDetect));
  console.phase(12, "generate", 64, "answers");
  now_s_ += 10;
  console.progress(32);
  console.step(full_record(12));
  const auto out = lines();
  ASSERT_EQ(out.size(), 2);
  EXPECT_EQ(
      out[0],
      "     step   reward  accuracy   length  entropy        kl  grad norm        lr     tok/s"
      "   s/step      eta");
  EXPECT_EQ(
      out[1],
      "   12/100    0.812     0.750    123.4    0.312  1.20e-04      0.512  1.00e-05     1,234"
      "    12.30    18m02");
  EXPECT_EQ(text().find('\033'), std::string::npos);
  EXPECT_EQ(text().find('\r'), std::string::npos);
}

TEST_F(ConsoleTest, MissingMetricsHaveNoColumnUntilTheyAppear) {
  Console console(options(ConsoleOptions::Terminal::kNo, 0));
  StepRecord r(1);
  r.set(metric::kRewardMean, 0.5);
  console.step(r);
  r.set(metric::kEntropy, 1.5);
  console.step(r);
  console.step(StepRecord(3));
  const auto out = lines();
  ASSERT_EQ(out.size(), 5);
  EXPECT_EQ(out[0], "     step   reward");
  EXPECT_EQ(out[1], "        1    0.500");
  EXPECT_EQ(out[2], "     step   reward  entropy");
  EXPECT_EQ(out[3], "        1    0.500    1.500");
  EXPECT_EQ(out[4], "        3");
}

TEST_F(ConsoleTest, HeaderComesBackAndValidationHasItsLine) {
  auto o = options(ConsoleOptions::Terminal::kNo);
  o.header_every_steps = 2;
  Console console(o);
  for (int step = 1; step <= 3; ++step) console.step(full_record(step));
  auto r = full_record(4);
  r.set("val-core/gsm8k/acc/mean@8", 0.5);
  r.set("val-core/gsm8k/acc/best@8/mean", 0.875);
  r.set("val-aux/gsm8k/acc/std@8", 0.1);
  console.step(r);
  const auto out = lines();
  ASSERT_EQ(out.size(), 7);
  EXPECT_EQ(out[0], out[3]);
  EXPECT_EQ(out[6], "           validation  gsm8k/acc/mean@8 0.500   gsm8k/acc/best@8/mean 0.875");
}

TEST_F(ConsoleTest, StatusLineOnlyOnATerminalAndAfterTwoSeconds) {
  Console console(options(ConsoleOptions::Terminal::kYes));
  console.phase(3, "generate", 64, "answers");
  now_s_ += 1.9;
  console.progress(10);
  EXPECT_EQ(text(), "");
  now_s_ += 6.1;
  console.progress(32);
  EXPECT_EQ(text(),
            "\r\033[Kstep 3/100  generate  [==========          ] 32/64 answers  8s  eta 8s");
  console.progress(33);  // less than a tenth of a second later
  EXPECT_EQ(text().find("33/64"), std::string::npos);
  console.end_phase();
  EXPECT_TRUE(text().ends_with("\r\033[K"));
}

TEST_F(ConsoleTest, LogLinesClearTheStatusLine) {
  {
    Console console(options(ConsoleOptions::Terminal::kYes));
    console.phase(3, "update");
    now_s_ += 5;
    console.progress(1000);
    EXPECT_TRUE(text().ends_with("step 3/100  update  1,000  5s"));
    spdlog::warn("a warning of the console test");
    EXPECT_TRUE(text().ends_with("5s\r\033[K"));
  }
  const auto before = text();
  spdlog::warn("another, after the console is gone");
  EXPECT_EQ(text(), before);
}

TEST(Console, NumbersForPeople) {
  EXPECT_EQ(format_duration(0.4), "0s");
  EXPECT_EQ(format_duration(245), "4m05");
  EXPECT_EQ(format_duration(3 * 3600 + 7 * 60), "3h07");
  EXPECT_EQ(format_duration(2 * 86400 + 3 * 3600), "2d03h");
  EXPECT_EQ(format_duration(-1), "");
  EXPECT_EQ(format_thousands(0), "0");
  EXPECT_EQ(format_thousands(999), "999");
  EXPECT_EQ(format_thousands(1234567), "1,234,567");
  EXPECT_EQ(format_thousands(-1000), "-1,000");
}

}  // namespace
}  // namespace keel
