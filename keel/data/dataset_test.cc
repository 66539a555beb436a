#include "keel/data/dataset.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>

#include "keel/base/error.h"
#include "keel/data/json_record.h"

namespace keel {
namespace {

class DatasetTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() /
           ("keel_data_" + std::to_string(getpid()) + "_" +
            testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ / name, std::ios::binary) << text;
    return dir_ / name;
  }

  std::filesystem::path dir_;
};

std::string rows(int n) {
  std::string s;
  for (int i = 0; i < n; ++i) {
    s +=
        "{\"prompt\": \"q" + std::to_string(i) + "\", \"answer\": \"" + std::to_string(i) + "\"}\n";
  }
  return s;
}

TEST_F(DatasetTest, RowHasItsColumnsAndPlace) {
  const auto path =
      write("a.jsonl",
            "\n{\"prompt\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", "
            "\"content\": [{\"type\": \"text\", \"text\": \"u\"}]}], \"answer\": 7, \"k\": [1]}\n");
  const auto data = load_dataset({path}, {});
  ASSERT_EQ(data.rows.size(), 1u);
  const auto& r = data.rows[0];
  EXPECT_EQ(to_json(r.prompt.messages).dump(),
            R"([{"content":"s","role":"system"},{"content":"u","role":"user"}])");
  EXPECT_EQ(r.ground_truth, "7");
  EXPECT_EQ(r.extra.dump(), R"({"k":[1]})");
  EXPECT_EQ(r.row, 0);
  EXPECT_EQ(r.line, 2);
}

TEST_F(DatasetTest, ErrorNamesFileLineAndNearKey) {
  const auto path = write("a.jsonl", "{\"prompt\": \"q\"}\n{\"promt\": \"q\"}\n");
  try {
    load_dataset({path}, {});
    FAIL();
  } catch (const Error& e) {
    const std::string what = e.what();
    EXPECT_NE(what.find("a.jsonl:2: error: prompt: missing_field"), std::string::npos) << what;
    EXPECT_NE(what.find("did you mean 'promt'?"), std::string::npos) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
  }
}

TEST_F(DatasetTest, ManyFaultsGiveAShortReport) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "{\"promt\": \"q" + std::to_string(i) + "\"}\n";
  const auto findings = check_dataset({write("a.jsonl", text)}, {});
  ASSERT_EQ(findings.size(), 5u);
  EXPECT_EQ(findings.back().num_more, 4995);
  EXPECT_NE(report(findings, 20).find("5000 errors"), std::string::npos);
}

TEST_F(DatasetTest, SubsetDependsOnTheSeedAlone) {
  const auto path = write("a.jsonl", rows(100));
  DataOptions o;
  o.max_rows = 10;
  o.seed = 3;
  const auto a = load_dataset({path}, o), b = load_dataset({path}, o);
  ASSERT_EQ(a.rows.size(), 10u);
  EXPECT_EQ(a.fingerprint, b.fingerprint);
  EXPECT_TRUE(std::is_sorted(a.rows.begin(), a.rows.end(),
                             [](const Row& x, const Row& y) { return x.row < y.row; }));
  o.seed = 4;
  EXPECT_NE(load_dataset({path}, o).fingerprint, a.fingerprint);
}

TEST_F(DatasetTest, FingerprintSeesAnEditedFile) {
  auto text = rows(20);
  const auto before = load_dataset({write("a.jsonl", text)}, {}).fingerprint;
  text[text.find("q7")] = 'Q';
  EXPECT_NE(load_dataset({write("a.jsonl", text)}, {}).fingerprint, before);
}

TEST_F(DatasetTest, OverlongRowsAreDroppedOnRequest) {
  const auto path = write("a.jsonl", rows(12));  // q10 and q11 are the longest
  DataOptions o;
  o.count_prompt_tokens = [](const Row& r) { return static_cast<int64_t>(r.prompt.text.size()); };
  o.max_prompt_tokens = 2;
  EXPECT_THROW(load_dataset({path}, o), Error);
  o.overlong = Overlong::kDrop;
  const auto data = load_dataset({path}, o);
  EXPECT_EQ(data.rows.size(), 10u);
  EXPECT_EQ(data.num_dropped, 2);
}

TEST_F(DatasetTest, SplitIsDisjointAndSeeded) {
  const auto path = write("a.jsonl", rows(50));
  auto [train, val] = split_dataset(load_dataset({path}, {}), 0.2, 5);
  EXPECT_EQ(train.rows.size(), 40u);
  EXPECT_EQ(val.rows.size(), 10u);
  std::set<int64_t> seen;
  for (const auto* part : {&train, &val}) {
    for (const auto& r : part->rows) EXPECT_TRUE(seen.insert(r.row).second);
  }
  const auto again = split_dataset(load_dataset({path}, {}), 0.2, 5);
  EXPECT_EQ(again.second.rows.front().row, val.rows.front().row);
}

TEST_F(DatasetTest, SftConversationIsCutInFrontOfItsFirstAnswer) {
  const auto path = write(
      "a.jsonl",
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", )"
      R"("weight": 0}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]})");
  DataOptions o;
  o.task = DataTask::kSft;
  const auto data = load_dataset({path}, o);
  const auto& r = data.rows.at(0);
  ASSERT_EQ(r.prompt.messages.size(), 1u);
  ASSERT_EQ(r.completion.messages.size(), 3u);
  EXPECT_FALSE(r.completion.messages[0].trained);
  EXPECT_TRUE(r.completion.messages[2].trained);
}

TEST_F(DatasetTest, ImplicitPromptIsTheCommonBeginning) {
  DataOptions o;
  o.task = DataTask::kDpo;
  const auto path =
      write("a.jsonl", "{\"chosen\": \"q: \xC3\xA4\", \"rejected\": \"q: \xC3\xB6\"}\n");
  const auto data = load_dataset({path}, o);
  EXPECT_EQ(data.rows.at(0).prompt.text, "q: ");  // not half of a character
  EXPECT_EQ(data.rows.at(0).chosen.text, "\xC3\xA4");
}

TEST_F(DatasetTest, NumbersThatDoNotFitAreKeptAsText) {
  OrderedJson v;
  std::vector<Issue> issues;
  ASSERT_TRUE(parse_json_record(R"({"a": 1e999, "b": 123456789012345678901, "c": [-1e999]})", 10, v,
                                issues));
  EXPECT_EQ(v.dump(), R"({"a":"1e999","b":"123456789012345678901","c":["-1e999"]})");
  EXPECT_EQ(issues.size(), 3u);
}

// 50 MB in one line, and a gzip bomb: refused with little memory.
TEST_F(DatasetTest, LargeFilesAreRefusedInBoundedMemory) {
  const std::string chunk(size_t{1} << 20, 'x');
  {
    std::ofstream out(dir_ / "big.jsonl");
    out << R"({"prompt": "1+1?"})"
        << "\n{\"prompt\": \"";
    for (int i = 0; i < 50; ++i) out << chunk;
    out << "\"}\n"
        << R"({"prompt": "1+2?"})"
        << "\n";
  }
  const std::string bomb = dir_ / "bomb.jsonl.gz";
  {
    const auto gz = gzopen(bomb.c_str(), "wb1");
    const std::string blanks(size_t{1} << 20, ' ');
    for (int i = 0; i < 200; ++i) gzwrite(gz, blanks.data(), static_cast<unsigned>(blanks.size()));
    gzclose(gz);
  }
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  const auto big = check_dataset({dir_ / "big.jsonl"}, {});
  ASSERT_EQ(big.size(), 1u);
  EXPECT_EQ(big[0].kind, "too_large");
  EXPECT_EQ(big[0].line, 2);
  EXPECT_EQ(big[0].row, 1);
  const auto zip = check_dataset({bomb}, {});
  ASSERT_EQ(zip.size(), 1u);
  EXPECT_EQ(zip[0].kind, "too_large");
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 64 * 1024);  // KiB
}

}  // namespace
}  // namespace keel
