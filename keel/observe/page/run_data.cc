#include "keel/observe/page/run_data.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "keel/base/error.h"
#include "keel/base/json.h"
#include "keel/observe/metrics_file.h"

namespace keel::page {
namespace {

namespace fs = std::filesystem;
constexpr size_t kSamplesPerEnd = 2;
constexpr size_t kMaxLogLines = 100;

std::string as_text(const Json& j) {
  if (j.is_null()) return "";
  if (j.is_string()) return j.get<std::string>();
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string field(const Json& row, const char* name) {
  return row.contains(name) ? as_text(row[name]) : "";
}

double score_of(const Json& row) {
  const auto it = row.find("score");
  if (it == row.end()) return 0;
  if (it->is_boolean()) return it->get<bool>() ? 1 : 0;
  return it->is_number() ? it->get<double>() : 0;
}

SampleSet read_samples(const std::string& path, int64_t step, int64_t& num_bad_lines) {
  std::vector<Sample> rows;
  std::ifstream in(path, std::ios::binary);
  std::string line;
  while (std::getline(in, line)) {
    if (line.empty()) continue;
    const auto row = Json::parse(line, nullptr, false);
    if (!row.is_object()) {
      ++num_bad_lines;
      continue;
    }
    rows.push_back({field(row, "input"), field(row, "output"), field(row, "gts"), score_of(row)});
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Sample& a, const Sample& b) { return a.score > b.score; });
  SampleSet set{
      .step = step, .num_rows = static_cast<int64_t>(rows.size()), .best = {}, .worst = {}};
  const size_t num_best = std::min(kSamplesPerEnd, rows.size());
  const size_t num_worst = std::min(kSamplesPerEnd, rows.size() - num_best);
  set.best.assign(rows.begin(), rows.begin() + static_cast<ptrdiff_t>(num_best));
  set.worst.assign(rows.rbegin(), rows.rbegin() + static_cast<ptrdiff_t>(num_worst));
  return set;
}

// step -> path of samples/step_<N>.jsonl
std::map<int64_t, std::string> sample_files(const fs::path& folder) {
  std::map<int64_t, std::string> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const auto name = entry.path().filename().string();
    if (!name.starts_with("step_") || !name.ends_with(".jsonl")) continue;
    const auto digits = name.substr(5, name.size() - 11);
    int64_t step = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
    if (error == std::errc() && end == digits.data() + digits.size()) {
      files.emplace(step, entry.path().string());
    }
  }
  return files;
}

std::vector<SampleSet> read_some_samples(const fs::path& folder, int64_t& num_bad_lines) {
  const auto files = sample_files(folder);
  std::vector<SampleSet> sets;
  if (files.empty()) return sets;
  const size_t n = files.size();
  std::vector<size_t> picks = {0, n / 2, n - 1};
  picks.erase(std::unique(picks.begin(), picks.end()), picks.end());
  for (const size_t i : picks) {
    const auto& [step, path] = *std::next(files.begin(), static_cast<ptrdiff_t>(i));
    auto set = read_samples(path, step, num_bad_lines);
    if (set.num_rows > 0) sets.push_back(std::move(set));
  }
  return sets;
}

// Lines of add_log_file's pattern: "W 2026-01-31 12:00:00.000 text".
std::vector<LogLine> read_log(const fs::path& path) {
  std::vector<LogLine> lines;
  std::ifstream in(path, std::ios::binary);
  std::string line;
  while (std::getline(in, line)) {
    const bool warning = line.starts_with("W "), error = line.starts_with("E ");
    if (!warning && !error && !line.starts_with("C ")) continue;
    const auto date_end = line.find(' ', 2);
    const auto time_end = date_end == line.npos ? line.npos : line.find(' ', date_end + 1);
    const auto text = time_end == line.npos ? line.substr(2) : line.substr(time_end + 1);
    const auto it =
        std::find_if(lines.begin(), lines.end(), [&](const LogLine& l) { return l.text == text; });
    if (it != lines.end()) {
      ++it->count;
    } else if (lines.size() < kMaxLogLines) {
      lines.push_back({text, 1, !warning});
    }
  }
  return lines;
}

std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

RunData read_run(const std::string& run_dir) {
  KEEL_REQUIRE(fs::is_directory(run_dir),
               "[report] expected a run directory, got '{}'; try runs/<name>", run_dir);
  const fs::path dir = fs::canonical(run_dir);
  RunData run;
  run.name = dir.filename().string();
  auto log = read_metrics(dir / "metrics.jsonl");
  run.records = std::move(log.records);
  run.num_bad_lines = log.num_bad_lines;
  run.findings = diagnose(run.records);
  run.samples = read_some_samples(dir / "samples", run.num_bad_lines);
  run.log = read_log(dir / "log.txt");
  run.config = read_text(dir / "config.yaml");
  return run;
}

}  // namespace keel::page
