#include "keel/observe/report.h"

#include <gtest/gtest.h>

#include <cmath>

#include "keel/io/test_util.h"
#include "keel/observe/metric_names.h"
#include "keel/observe/metrics_file.h"
#include "keel/observe/page/html.h"
#include "keel/observe/page/summary.h"

namespace keel {
namespace {

using test::read_bytes;
using test::TempFolder;

StepRecord synthetic_step(int step, int num_steps) {
  const double p = static_cast<double>(step - 1) / (num_steps - 1);
  StepRecord r(step);
  r.set(metric::kScoreMean, 0.2 + 0.7 * p);
  r.set(metric::kRewardMean, 0.2 + 0.7 * p);
  r.set(metric::kRewardMax, 1);
  r.set(metric::kRewardMin, 0);
  r.set(metric::kAccuracy, 0.2 + 0.7 * p);
  r.set(metric::kEntropy, 1 - 0.8 * p);
  r.set(metric::kKlLoss, 0.01 * p);
  r.set(metric::kRolloutDiffMax, 0);
  r.set(metric::kGradNorm, 0.5);
  r.set(metric::kLearningRate, 1e-5);
  r.set(metric::kThroughput, 1200);
  r.set(metric::kTimeGen, 3);
  r.set(metric::kTimeUpdateActor, 4);
  r.set(metric::kTimeStep, 7.5);
  r.set(metric::kCpuMemory, 1.25);
  r.set_lengths(metric::kResponseLength, std::vector<double>{4, 5, 6, 7, 20.0 + step % 5});
  if (step % 10 == 0) r.set("val-core/sums/acc/mean@4", 0.1 + 0.8 * p);
  return r;
}

// 40 steps with samples, a configuration and a log, as `keel train` leaves them.
void write_synthetic_run(const std::string& dir, int num_steps = 40) {
  std::filesystem::create_directories(dir + "/samples");
  MetricsFile metrics(dir + "/metrics.jsonl");
  for (int step = 1; step <= num_steps; ++step) {
    metrics.append(synthetic_step(step, num_steps));
    std::string rows;
    for (int i = 0; i < 6; ++i) {
      const Json row = {{"input", "What is " + std::to_string(i) + " + 1?"},
                        {"output", "answer " + std::to_string(i) + " of step " +
                                       std::to_string(step) + " <script>alert(1)</script>"},
                        {"gts", std::to_string(i + 1)},
                        {"score", i / 5.0},
                        {"step", step},
                        {"uid", "u"}};
      rows += row.dump() + "\n";
    }
    test::write_bytes(dir + "/samples/step_" + std::to_string(step) + ".jsonl",
                      rows + "{\"input\": \"cut");
  }
  test::write_bytes(dir + "/config.yaml", "optim:\n  lr: 1.0e-5  # <b>\n");
  test::write_bytes(dir + "/log.txt",
                    "I 2026-01-31 12:00:00.000 started\n"
                    "W 2026-01-31 12:00:01.000 prompt 3 was cut & kept\n"
                    "W 2026-01-31 12:00:02.000 prompt 3 was cut & kept\n"
                    "E 2026-01-31 12:00:03.000 disk nearly full\n");
}

// What the page's script reads.
Json chart_json(const std::string& html) {
  const std::string open = "<script type=\"application/json\" id=\"run-data\">";
  const auto begin = html.find(open);
  if (begin == html.npos) return {};
  const auto start = begin + open.size();
  return Json::parse(html.substr(start, html.find("</script>", start) - start));
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(Report, PageHoldsTheRun) {
  const TempFolder folder;
  const auto dir = folder.file("my <run>");
  write_synthetic_run(dir);
  const auto path = write_report(dir);
  EXPECT_EQ(path, dir + "/report.html");
  const auto html = read_bytes(path);

  EXPECT_NE(html.find("<title>my &lt;run&gt; – Keel report</title>"), html.npos);
  const auto data = chart_json(html);
  std::vector<std::string> titles;
  for (const auto& c : data["charts"]) titles.push_back(c["title"]);
  EXPECT_EQ(titles, (std::vector<std::string>{
                        "Reward", "Accuracy", "Response length", "Response lengths of step 40",
                        "Entropy", "KL", "Rollout against training", "Gradient norm",
                        "Learning rate", "Time per stage", "Tokens per second", "Memory"}));
  EXPECT_EQ(data["steps"].size(), 40);
  for (const auto& c : data["charts"]) {
    for (const auto& s : c["series"]) {
      EXPECT_EQ(s["values"].size(), c["kind"] == "bars" ? c["labels"].size() : 40);
    }
  }
  EXPECT_EQ(data["charts"][1]["series"][1]["label"], "sums/acc/mean@4");
  EXPECT_TRUE(data["charts"][1]["series"][1]["values"][0].is_null());
  // Stages only: not the step that holds them.
  EXPECT_EQ(data["charts"][9]["series"].size(), 2);

  EXPECT_NE(html.find("bit-exact"), html.npos);
  EXPECT_NE(html.find("prompt 3 was cut &amp; kept <span class=\"quiet\">× 2</span>"), html.npos);
  EXPECT_NE(html.find("disk nearly full"), html.npos);
  EXPECT_EQ(html.find("started"), html.npos);
  EXPECT_NE(html.find("lr: 1.0e-5  # &lt;b&gt;"), html.npos);
}

TEST(Report, SamplesAreBestAndWorstOfThreeStepsAndEscaped) {
  const TempFolder folder;
  write_synthetic_run(folder.path());
  const auto html = read_bytes(write_report(folder.path()));
  EXPECT_EQ(count(html, "<div class=\"sample\">"), 12);
  for (const int step : {1, 21, 40}) {
    for (const int i : {0, 1, 4, 5}) {
      const auto text = "answer " + std::to_string(i) + " of step " + std::to_string(step) +
                        " &lt;script&gt;alert(1)&lt;/script&gt;";
      EXPECT_EQ(count(html, text), 1) << text;
    }
  }
  EXPECT_EQ(html.find("<script>alert"), html.npos);
  EXPECT_NE(html.find("3 lines of metrics or samples could not be read"), html.npos);
}

TEST(Report, NeedsNothingFromOutside) {
  const TempFolder folder;
  write_synthetic_run(folder.path());
  const auto html = read_bytes(write_report(folder.path()));
  EXPECT_GT(html.size(), 200'000);  // Chart.js is inside
  EXPECT_NE(html.find("Released under the MIT License"), html.npos);
  for (const char* outside : {"src=", "href=", "@import", "url(", "fetch(\""}) {
    const auto without_chart = html.substr(0, html.find("Chart.js v"));
    EXPECT_EQ(without_chart.find(outside), html.npos) << outside;
  }
  // Four script elements: data, Chart.js, page; none ends early.
  EXPECT_EQ(count(html, "</script"), 3);
  EXPECT_EQ(html, read_bytes(write_report(folder.path())));  // same files, same bytes
}

TEST(Report, EmptyAndBrokenRunsStillGiveAPage) {
  const TempFolder folder;
  EXPECT_NE(read_bytes(write_report(folder.path())).find("No finished step yet"),
            std::string::npos);
  test::write_bytes(folder.file("metrics.jsonl"),
                    "{\"step\":1,\"actor/entropy\":\"NaN\"}\nnonsense");
  std::filesystem::create_directories(folder.file("samples"));
  test::write_bytes(
      folder.file("samples/step_1.jsonl"),
      "{\"input\":[{\"role\":\"user\"}],\"output\":null}\n{\"output\":\"\xff\"}\n[]\n");
  test::write_bytes(folder.file("samples/step_x.jsonl"), "?");
  const auto html = read_bytes(write_report(folder.path()));
  EXPECT_NE(html.find("3 lines of metrics or samples"), std::string::npos);
  EXPECT_THROW(write_report(folder.file("absent")), Error);
}

TEST(Report, LongRunsAreThinned) {
  const TempFolder folder;
  MetricsFile metrics(folder.file("metrics.jsonl"));
  for (int step = 1; step <= 2500; ++step) {
    StepRecord r(step);
    r.set(metric::kRewardMean, step);
    metrics.append(r);
  }
  const auto data = chart_json(read_bytes(write_report(folder.path())));
  EXPECT_EQ(data["thinned"], 3);
  EXPECT_EQ(data["steps"].size(), 834);
  EXPECT_EQ(data["steps"].back(), 2500);
}

TEST(Report, SummaryForScripts) {
  const TempFolder folder;
  const auto dir = folder.file("run1");
  write_synthetic_run(dir);
  const auto summary = summarize_run(dir);
  EXPECT_EQ(summary["steps"], 40);
  EXPECT_EQ(summary["exact"], true);
  EXPECT_NEAR(summary["metrics"][metric::kAccuracy]["last"].get<double>(), 0.9, 1e-12);
  EXPECT_EQ(summary["headline"][2]["label"], "Validation sums/acc/mean@4");
  EXPECT_EQ(summary["headline"][2]["best_step"], 40);
  EXPECT_EQ(summary["findings"].size(), 0);
  const auto markdown = report_markdown(summary);
  EXPECT_NE(markdown.find("# run1\n\n40 steps, sampling and training bit-exact\n"),
            std::string::npos);
  EXPECT_NE(markdown.find("| Reward | 0.200 | 0.900 (step 40) | 0.900 |\n"), std::string::npos);
  EXPECT_NE(markdown.find("| Entropy (nats) | 1.000 | – | 0.200 |\n"), std::string::npos);
}

TEST(Report, TextIsEscapedAndCutBetweenCharacters) {
  EXPECT_EQ(page::escape_html("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
  EXPECT_EQ(page::escape_html("é\xff\xe2\x82z"), "é\uFFFD\uFFFD\uFFFDz");
  EXPECT_EQ(page::escape_html("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate
  EXPECT_EQ(page::escape_html("日本🚀"), "日本🚀");
  EXPECT_EQ(page::shorten("日本語", 7), "日本 … (3 more bytes)");
  EXPECT_EQ(page::shorten("short", 7), "short");
  EXPECT_EQ(page::short_number(0.8125), "0.812");
  EXPECT_EQ(page::short_number(1234.5), "1,234");
  EXPECT_EQ(page::short_number(1e-5), "1.00e-05");
}

}  // namespace
}  // namespace keel
