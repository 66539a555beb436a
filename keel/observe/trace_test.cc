#include "keel/observe/trace.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <thread>

#include "keel/base/json.h"
#include "keel/io/test_util.h"

namespace keel {
namespace {

using test::TempFolder;

Json written_trace(const TempFolder& folder) {
  const auto path = folder.file("trace.json");
  trace::write(path);
  return Json::parse(test::read_bytes(path));
}

std::vector<Json> events_of(const Json& file, const std::string& phase) {
  std::vector<Json> found;
  for (const auto& e : file["traceEvents"]) {
    if (e["ph"] == phase) found.push_back(e);
  }
  return found;
}

TEST(Trace, RecordsNestedSpansOfSeveralThreads) {
  const TempFolder folder;
  trace::start();
  trace::set_thread_name("main");
  {
    const trace::Span outer("step");
    const trace::Span inner("prefill", "tokens", 128);
    trace::counter("free blocks", 7.5);
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      trace::set_thread_name("worker \"" + std::to_string(t) + "\"");
      for (int i = 0; i < 100; ++i) const trace::Span span("work", "i", i);
    });
  }
  for (int i = 0; i < 5; ++i) trace::write(folder.file("meanwhile.json"));
  for (auto& t : threads) t.join();
  trace::stop();
  { const trace::Span late("late"); }

  const auto file = written_trace(folder);
  const auto spans = events_of(file, "X");
  ASSERT_EQ(spans.size(), 402);
  EXPECT_EQ(spans[0]["name"], "prefill");  // ends first
  EXPECT_EQ(spans[0]["args"]["tokens"], 128);
  EXPECT_EQ(spans[1]["name"], "step");
  EXPECT_LE(spans[1]["ts"].get<double>(), spans[0]["ts"].get<double>());
  EXPECT_GE(spans[1]["dur"].get<double>(), spans[0]["dur"].get<double>());
  std::set<int> tids;
  for (const auto& s : spans) tids.insert(s["tid"].get<int>());
  EXPECT_EQ(tids.size(), 5);
  const auto counters = events_of(file, "C");
  ASSERT_EQ(counters.size(), 1);
  EXPECT_EQ(counters[0]["args"]["value"], 7.5);
  std::set<std::string> names;
  for (const auto& m : events_of(file, "M")) names.insert(m["args"]["name"]);
  EXPECT_TRUE(names.contains("main"));
  EXPECT_TRUE(names.contains("worker \"3\""));
}

TEST(Trace, StartForgetsAndOffRecordsNothing) {
  const TempFolder folder;
  trace::start();
  { const trace::Span span("old"); }
  trace::start();
  trace::stop();
  { const trace::Span span("off"); }
  EXPECT_TRUE(written_trace(folder)["traceEvents"].empty());
}

TEST(Trace, SpansWhileOffCostNextToNothing) {
  trace::stop();
  constexpr int kSpans = 1'000'000;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kSpans; ++i) const trace::Span span("off", "i", i);
  const auto ns =
      std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin);
  // A load and two branches; 100 ns leaves room for sanitizers and a busy machine.
  EXPECT_LT(ns.count() / kSpans, 100);
}

}  // namespace
}  // namespace keel
