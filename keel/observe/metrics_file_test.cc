#include "keel/observe/metrics_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "keel/base/rng.h"
#include "keel/io/test_util.h"
#include "keel/observe/metric_names.h"

namespace keel {
namespace {

using test::read_bytes;
using test::TempFolder;

StepRecord record_of(int64_t step) {
  StepRecord r(step);
  r.set(metric::kRewardMean, 0.1 * static_cast<double>(step));
  r.set(metric::kLearningRate, 1e-5);
  return r;
}

TEST(StepRecord, KeepsOrderAndPlaceOfNames) {
  StepRecord r(3);
  r.set("b", 1);
  r.set("a", 2);
  r.set("b", 3);
  EXPECT_EQ(to_json_line(r), R"({"step":3,"b":3,"a":2})");
  EXPECT_EQ(r.get("b"), 3);
  EXPECT_EQ(r.get("c"), std::nullopt);
}

TEST(StepRecord, DoublesReadBackToTheSameBits) {
  std::vector<double> values = {0.0,
                                -0.0,
                                1.0,
                                -1.0,
                                0.1,
                                1e-5,
                                1e300,
                                5e-324,
                                1.0 / 3,
                                9007199254740994.0,
                                1e16,
                                123456789.0,
                                -2.5e-7,
                                std::numeric_limits<double>::max(),
                                std::numeric_limits<double>::infinity(),
                                -std::numeric_limits<double>::infinity(),
                                std::numeric_limits<double>::quiet_NaN()};
  for (uint64_t i = 0; i < 2000; ++i) {
    const auto words = philox(7, i);
    const auto v = std::bit_cast<double>(static_cast<uint64_t>(words[0]) << 32 | words[1]);
    if (!std::isnan(v)) values.push_back(v);
  }
  StepRecord r(1);
  for (size_t i = 0; i < values.size(); ++i) r.set(fmt::format("v{}", i), values[i]);
  const auto back = parse_json_line(to_json_line(r));
  ASSERT_TRUE(back);
  ASSERT_EQ(back->metrics().size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint64_t>(back->metrics()[i].second),
              std::bit_cast<uint64_t>(values[i]))
        << values[i];
  }
}

TEST(StepRecord, LengthsGiveMetricsAndAHistogramThatSurvives) {
  StepRecord r(1);
  r.set_lengths("response_length", std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  EXPECT_EQ(r.get(metric::kResponseMean), 6);
  EXPECT_EQ(r.get(metric::kResponseP10), 2);
  EXPECT_EQ(r.get(metric::kResponseP90), 10);
  const auto back = parse_json_line(to_json_line(r));
  ASSERT_TRUE(back && back->histogram(metric::kResponseLength));
  EXPECT_EQ(*back->histogram(metric::kResponseLength), *r.histogram(metric::kResponseLength));
  EXPECT_EQ(back->histogram(metric::kResponseLength)->counts.size(), 11);
}

TEST(StepRecord, RefusesLinesThatAreNotRecords) {
  for (const char* line : {"", "{", "[1]", "{\"a\":1}", "{\"step\":\"x\"}", "{\"step\":1,\"a\":"}) {
    EXPECT_FALSE(parse_json_line(line)) << line;
  }
  // Foreign values are left out, the rest is kept.
  const auto r = parse_json_line(R"({"step":1,"text":"hello","list":[1],"a":2})");
  ASSERT_TRUE(r);
  EXPECT_EQ(r->metrics().size(), 1);
}

TEST(MetricsFile, AppendedLinesAreInTheFileAtOnce) {
  const TempFolder folder;
  const auto path = folder.file("metrics.jsonl");
  MetricsFile file(path);
  file.append(record_of(1));
  EXPECT_EQ(read_bytes(path), to_json_line(record_of(1)) + "\n");
}

TEST(MetricsFile, ResumeKeepsEarlierBytesAndContinuesLikeTheUnbrokenRun) {
  const TempFolder folder;
  const auto unbroken = folder.file("a.jsonl"), broken = folder.file("b.jsonl");
  {
    MetricsFile file(unbroken);
    for (int i = 1; i <= 6; ++i) file.append(record_of(i));
  }
  {
    MetricsFile file(broken);
    for (int i = 1; i <= 5; ++i) file.append(record_of(i));
  }
  // Killed in the middle of a line, after the checkpoint of step 3.
  test::write_bytes(broken, read_bytes(broken) + R"({"step":6,"critic/rew)");
  {
    MetricsFile file(broken, 3);
    for (int i = 4; i <= 6; ++i) file.append(record_of(i));
  }
  EXPECT_EQ(read_bytes(broken), read_bytes(unbroken));
  // Without a resume step the file starts anew; resuming where no file is starts an empty one.
  MetricsFile fresh(broken);
  EXPECT_EQ(read_bytes(broken), "");
  MetricsFile absent(folder.file("c.jsonl"), 3);
  EXPECT_EQ(read_bytes(folder.file("c.jsonl")), "");
}

TEST(MetricsFile, ReaderMergesAStepAndCountsBadLines) {
  const TempFolder folder;
  const auto path = folder.file("metrics.jsonl");
  test::write_bytes(path,
                    "{\"step\":2,\"a\":1}\n\nnot json\n{\"step\":1,\"a\":0}\n"
                    "{\"step\":2,\"b\":3}\n{\"step\":3,\"a\":");
  const auto log = read_metrics(path);
  EXPECT_EQ(log.num_bad_lines, 2);
  ASSERT_EQ(log.records.size(), 2);
  EXPECT_EQ(log.records[0].step(), 1);
  EXPECT_EQ(to_json_line(log.records[1]), R"({"step":2,"a":1,"b":3})");
  EXPECT_TRUE(read_metrics(folder.file("absent")).records.empty());
}

TEST(MetricsFile, MissingFolderIsAnError) {
  EXPECT_EQ(test::fault_of([] { MetricsFile file("/no/such/folder/metrics.jsonl"); }),
            "missing_file");
}

TEST(MetricNames, TableHoldsEachNameOnceWithHelp) {
  std::vector<std::string_view> seen;
  for (const auto& info : metric::all()) {
    EXPECT_EQ(std::count(seen.begin(), seen.end(), info.name), 0) << info.name;
    EXPECT_FALSE(std::string_view(info.help).empty()) << info.name;
    seen.push_back(info.name);
  }
  EXPECT_EQ(metric::help(metric::kEntropy),
            "entropy of the next-token distribution, nats per token");
  EXPECT_EQ(metric::help("no/such"), "");
}

}  // namespace
}  // namespace keel
