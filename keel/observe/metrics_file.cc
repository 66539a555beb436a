#include "keel/observe/metrics_file.h"

#include <cerrno>
#include <fstream>
#include <map>

#include "keel/io/atomic_file.h"
#include "keel/io/file_error.h"

namespace keel {
namespace {

// The lines of `path` that belong to steps up to `last_step`, unchanged.
std::string kept_lines(const std::string& path, int64_t last_step) {
  std::ifstream in(path, std::ios::binary);
  std::string kept, line;
  while (std::getline(in, line)) {
    if (in.eof()) break;  // no line break: cut by a crash
    const auto record = parse_json_line(line);
    if (record && record->step() <= last_step) kept += line + "\n";
  }
  return kept;
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, std::optional<int64_t> resume_step)
    : path_(path) {
  write_file_atomic(path, resume_step ? kept_lines(path, *resume_step) : std::string());
  file_.reset(std::fopen(path.c_str(), "ab"));
  if (file_ == nullptr) throw_errno(path, "open", errno);
}

void MetricsFile::append(const StepRecord& record) {
  const auto line = to_json_line(record) + "\n";
  const bool written = std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size();
  if (!written || std::fflush(file_.get()) != 0) throw_errno(path_, "write", errno);
}

MetricsLog read_metrics(const std::string& path) {
  MetricsLog log;
  std::map<int64_t, StepRecord> by_step;
  std::ifstream in(path, std::ios::binary);
  std::string line;
  while (std::getline(in, line)) {
    if (line.empty()) continue;
    const auto record = parse_json_line(line);
    if (!record) {
      ++log.num_bad_lines;
      continue;
    }
    by_step.try_emplace(record->step(), record->step()).first->second.merge(*record);
  }
  for (auto& [step, record] : by_step) log.records.push_back(std::move(record));
  return log;
}

}  // namespace keel
