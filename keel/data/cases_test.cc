// The public case set: every bad file gets its expected finding, every good file none.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "keel/base/error.h"
#include "keel/base/test_data.h"
#include "keel/data/dataset.h"

namespace keel {
namespace {

std::vector<Json> read_lines(const std::string& path) {
  std::vector<Json> out;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) out.push_back(Json::parse(line));
  return out;
}

// Fewer than any tokenizer would give: a bound from below.
int64_t few_tokens(const Row& row) {
  size_t bytes = row.prompt.text.size();
  for (const auto& m : row.prompt.messages) bytes += m.content.size();
  return static_cast<int64_t>(bytes / 8);
}

DataOptions options_of(const Json& c) {
  DataOptions o;
  o.task = parse_data_task(c.at("task"));
  o.ground_truth_key = c.value("reward_column", "");
  o.max_prompt_tokens = c.value("max_prompt_length", 0);
  o.count_prompt_tokens = few_tokens;
  o.knows_data_source = [](const std::string& s) { return s == "openai/gsm8k" || s == "math"; };
  return o;
}

std::vector<std::string> files_of(const Json& c, const std::string& root) {
  std::vector<std::string> files;
  const auto list = c.at("file").is_array() ? c.at("file") : Json::array({c.at("file")});
  for (const auto& f : list) files.push_back(root + "/" + f.get<std::string>());
  return files;
}

std::string all(const std::vector<DataFinding>& findings) { return report(findings, 20); }

bool matches(const DataFinding& f, const Json& c, const std::string& root) {
  std::vector<std::string> kinds = c.at("also_ok");
  kinds.push_back(c.at("kind"));
  const std::string level = c.at("level");
  const bool is_error = f.level == FindingLevel::kError;
  if ((level == "error" && !is_error) || (level == "warn" && is_error)) return false;
  if (std::find(kinds.begin(), kinds.end(), f.kind) == kinds.end()) return false;
  if (!c.at("row").is_null() && f.row != c.at("row").get<int64_t>()) return false;
  if (!c.at("line").is_null() && f.line != c.at("line").get<int64_t>()) return false;
  if (c.contains("at_file") && f.file != root + "/" + c.at("at_file").get<std::string>())
    return false;
  // The field of a syntax error is where the parser stood; too_large rows are not parsed.
  const bool has_field = f.kind != "too_large" && !(f.kind == "json_syntax" && f.field.empty());
  return c.at("field").is_null() || !has_field || f.field == c.at("field").get<std::string>();
}

void check_bad(const Json& c, const std::string& root) {
  const auto files = files_of(c, root);
  const auto findings = check_dataset(files, options_of(c));
  EXPECT_TRUE(std::any_of(findings.begin(), findings.end(),
                          [&](const DataFinding& f) { return matches(f, c, root); }))
      << c.dump() << "\n"
      << all(findings);
  const bool has_error = std::any_of(findings.begin(), findings.end(), [](const DataFinding& f) {
    return f.level == FindingLevel::kError;
  });
  if (c.at("level") == "warn") {
    EXPECT_FALSE(has_error) << c.dump() << "\n" << all(findings);
  }
  if (c.at("level") == "error") {
    EXPECT_THROW(load_dataset(files, options_of(c)), Error) << c.dump();
  }
  // One fault in the file: nothing else may be reported.
  if (!c.contains("group")) {
    EXPECT_LE(findings.size(), 5u) << c.dump() << "\n" << all(findings);
  }
}

TEST(DataCases, BadFilesGetTheirFinding) {
  const auto list = test::cases("data/bad/expected.jsonl");
  if (list.empty()) GTEST_SKIP() << "no ../shared/cases/data/bad";
  const auto root = test::cases("data");
  int num_checked = 0;
  for (const auto& c : read_lines(list)) {
    // Three large files are not stored; dataset_test makes such ones.
    if (c.contains("made_by") && !std::filesystem::exists(files_of(c, root)[0])) continue;
    check_bad(c, root);
    ++num_checked;
  }
  EXPECT_GE(num_checked, 134);
}

std::string prompt_text(const Row& row) {
  if (!row.prompt.is_chat()) return row.prompt.text;
  std::string s;
  for (const auto& m : row.prompt.messages) s += (s.empty() ? "" : "\n") + m.role + ":" + m.content;
  return s;
}

void check_good(const Json& c, const std::string& root) {
  const auto options = options_of(c);
  const auto files = files_of(c, root);
  const auto findings = check_dataset(files, options);
  const bool only_warnings =
      std::all_of(findings.begin(), findings.end(),
                  [](const DataFinding& f) { return f.level == FindingLevel::kWarn; });
  EXPECT_TRUE(findings.empty() || (only_warnings && c.contains("warn_ok"))) << c.dump() << "\n"
                                                                            << all(findings);
  const auto data = load_dataset(files, options);
  EXPECT_EQ(static_cast<int64_t>(data.rows.size()), c.at("rows").get<int64_t>()) << c.dump();
  if (c.contains("first_prompt_text")) {
    EXPECT_EQ(prompt_text(data.rows.front()), c.at("first_prompt_text"));
  }
  if (c.contains("first_ground_truth")) {
    EXPECT_EQ(data.rows.front().ground_truth, c.at("first_ground_truth"));
  }
  if (c.contains("last_ground_truth")) {
    EXPECT_EQ(data.rows.back().ground_truth, c.at("last_ground_truth"));
  }
}

TEST(DataCases, GoodFilesAreReadInSilence) {
  const auto list = test::cases("data/good/expected.jsonl");
  if (list.empty()) GTEST_SKIP() << "no ../shared/cases/data/good";
  const auto root = test::cases("data");
  const auto cases = read_lines(list);
  for (const auto& c : cases) check_good(c, root);
  EXPECT_GE(cases.size(), 70u);
}

}  // namespace
}  // namespace keel
