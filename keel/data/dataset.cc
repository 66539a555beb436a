#include "keel/data/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "keel/base/error.h"
#include "keel/base/rng.h"
#include "keel/data/readers.h"
#include "keel/data/sampler.h"
#include "keel/data/schema.h"

namespace keel {
namespace {

// FNV-1a with a final mix; stable over machines and releases.
uint64_t hash_text(std::string_view s, uint64_t h = 0xCBF29CE484222325ull) {
  for (const char c : s) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  return mix_key(h, s.size());
}

std::string dump(const OrderedJson& v) {
  return v.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// One pass over all files: checks every row and hands on those that can be used.
class Scan {
 public:
  using Sink = std::function<void(Row&&, uint64_t hash)>;

  Scan(const std::vector<std::string>& files, const DataOptions& options, Sink sink)
      : files_(files),
        options_(options),
        sink_(std::move(sink)),
        log_(options.max_findings_per_class) {}

  void run() {
    for (size_t f = 0; f < files_.size(); ++f) {
      file_ = static_cast<int>(f);
      state_.file_is_verl = false;
      state_.file_schema.clear();
      repeated_ = std::find(files_.begin(), files_.begin() + static_cast<ptrdiff_t>(f),
                            files_[f]) != files_.begin() + static_cast<ptrdiff_t>(f);
      if (repeated_) {
        log_.add({"duplicate_file", FindingLevel::kWarn, files_[f], -1, -1, "",
                  "the file is listed twice", "", 0});
      }
      ReadLimits limits;
      limits.max_row_bytes = options_.max_row_bytes;
      read_records(files_[f], limits, log_, [this](Record&& r) { take(std::move(r)); });
    }
  }

  FindingLog& log() { return log_; }
  int64_t num_dropped() const { return num_dropped_; }

 private:
  void take(Record&& r) {
    const auto& path = files_[static_cast<size_t>(file_)];
    RowReport report(log_, path, r.row, r.line, r.columns);
    for (const auto& i : r.issues) report.add(i.kind, i.level, i.field, i.message, "");
    if (!r.usable) return;
    if (!r.value.is_object()) {
      return report.error("wrong_type", "",
                          fmt::format("expected an object, got {}", r.value.type_name()));
    }
    if (r.row == 0 && is_wrapper(r.value, report)) return;
    Row row;
    row.file = file_;
    row.row = r.row;
    row.line = r.line;
    const bool usable = read_row(r.value, report, row);
    const uint64_t hash = hash_text(dump(r.value));
    if (!repeated_) find_copies(r.value, hash, report);
    if (usable && fits(row, report)) sink_(std::move(row), hash);
  }

  bool read_row(const OrderedJson& value, RowReport& report, Row& row) {
    switch (options_.task) {
      case DataTask::kRl:
        return read_rl_row(value, options_, state_, report, row);
      case DataTask::kSft:
        return read_sft_row(value, options_, state_, report, row);
      case DataTask::kDpo:
      case DataTask::kRewardModel:
        return read_preference_row(value, options_, report, row);
      case DataTask::kKto:
        return read_kto_row(value, options_, report, row);
    }
    return false;
  }

  // One object that holds the rows under a key, or one list a column, is a common mistake.
  bool is_wrapper(const OrderedJson& value, RowReport& report) {
    bool lists = value.size() > 1;
    size_t length = 0;
    for (const auto& [key, v] : value.items()) {
      const bool known = key == options_.prompt_key || key == "messages" ||
                         key == "conversations" || key == "chosen" || key == "completion";
      if (!known && v.is_array() && !v.empty() && v[0].is_object() && value.size() <= 3 &&
          v[0].contains(options_.prompt_key)) {
        report.error(
            "wrong_type", "",
            fmt::format("the rows are under the key '{}'; write them as a list of rows", key));
        return true;
      }
      lists &= v.is_array() && v.size() > 1 && (length == 0 || v.size() == length) &&
               v[0].is_primitive();
      length = v.is_array() ? v.size() : 0;
    }
    if (lists) report.error("wrong_type", "", "an object of columns; write a list of rows");
    return lists;
  }

  void find_copies(const OrderedJson& value, uint64_t hash, RowReport& report) {
    const Seen here{file_, report.row()};
    if (const auto [it, fresh] = rows_.try_emplace(hash, here); !fresh) {
      return report.warn("duplicate_row", "", fmt::format("is a copy of {}", place(it->second)));
    }
    const auto* id = find_value(value, "id");
    if (!id || !id->is_primitive()) return;
    if (const auto [it, fresh] = ids_.try_emplace(hash_text(dump(*id)), here); !fresh) {
      report.warn("duplicate_id", "id", fmt::format("the same id as {}", place(it->second)));
    }
  }

  struct Seen {
    int file;
    int64_t row;
  };
  std::string place(const Seen& s) const {
    return s.file == file_
               ? fmt::format("row {}", s.row)
               : fmt::format("row {} of {}", s.row, files_[static_cast<size_t>(s.file)]);
  }

  bool fits(const Row& row, RowReport& report) {
    if (!options_.count_prompt_tokens || options_.max_prompt_tokens <= 0) return true;
    const int64_t n = options_.count_prompt_tokens(row);
    if (n <= options_.max_prompt_tokens) return true;
    const bool drop = options_.overlong == Overlong::kDrop;
    num_dropped_ += drop;
    report.add("too_long", drop ? FindingLevel::kWarn : FindingLevel::kError, options_.prompt_key,
               fmt::format("{} tokens, the limit is {}{}", n, options_.max_prompt_tokens,
                           drop ? "; the row is left out" : ""),
               "");
    return false;
  }

  const std::vector<std::string>& files_;
  const DataOptions& options_;
  Sink sink_;
  FindingLog log_;
  SchemaState state_;
  int file_ = 0;
  bool repeated_ = false;
  int64_t num_dropped_ = 0;
  std::unordered_map<uint64_t, Seen> rows_, ids_;
};

}  // namespace

DataTask parse_data_task(const std::string& name) {
  static constexpr std::pair<const char*, DataTask> kTasks[] = {{"rl", DataTask::kRl},
                                                                {"sft", DataTask::kSft},
                                                                {"dpo", DataTask::kDpo},
                                                                {"rm", DataTask::kRewardModel},
                                                                {"kto", DataTask::kKto}};
  for (const auto& [word, task] : kTasks) {
    if (name == word) return task;
  }
  throw_invalid("[data] expected a task of rl, sft, dpo, rm, kto, got '{}'", name);
}

Dataset load_dataset(const std::vector<std::string>& files, const DataOptions& options) {
  Dataset data;
  data.files = files;
  std::vector<uint64_t> hashes;
  Scan scan(files, options, [&](Row&& row, uint64_t hash) {
    data.rows.push_back(std::move(row));
    hashes.push_back(hash);
  });
  scan.run();
  const bool failed = scan.log().has_errors();
  auto findings = scan.log().take();
  constexpr int kMaxLines = 20;
  if (failed && findings.size() == 1) throw_invalid("[data] {}", to_string(findings[0]));
  KEEL_REQUIRE(!failed, "[data] the data cannot be used:\n{}", report(findings, kMaxLines));
  KEEL_REQUIRE(!data.rows.empty(),
               "[data] no rows are left of {} files; {} prompts were above the limit of {} tokens",
               files.size(), scan.num_dropped(), options.max_prompt_tokens);
  const auto n = static_cast<int64_t>(data.rows.size());
  if (options.max_rows > 0 && options.max_rows < n) {
    auto keep = epoch_order(n, options.seed, 0, true);
    keep.resize(static_cast<size_t>(options.max_rows));
    std::sort(keep.begin(), keep.end());
    std::vector<Row> rows;
    std::vector<uint64_t> kept;
    for (const auto i : keep) {
      rows.push_back(std::move(data.rows[static_cast<size_t>(i)]));
      kept.push_back(hashes[static_cast<size_t>(i)]);
    }
    data.rows = std::move(rows);
    hashes = std::move(kept);
  }
  for (const auto h : hashes) data.fingerprint = mix_key(data.fingerprint, h);
  data.num_dropped = scan.num_dropped();
  data.warnings = std::move(findings);
  return data;
}

std::vector<DataFinding> check_dataset(const std::vector<std::string>& files,
                                       const DataOptions& options) {
  Scan scan(files, options, [](Row&&, uint64_t) {});
  scan.run();
  return scan.log().take();
}

std::pair<Dataset, Dataset> split_dataset(Dataset all, double fraction, uint64_t seed) {
  KEEL_REQUIRE(fraction >= 0 && fraction < 1,
               "[data] expected a validation fraction in [0, 1), got {}", fraction);
  const auto n = static_cast<int64_t>(all.rows.size());
  auto num_held = static_cast<int64_t>(fraction * static_cast<double>(n));
  if (fraction > 0 && n >= 2) num_held = std::max<int64_t>(1, num_held);
  constexpr uint64_t kSplitStream = 0x76616C;  // apart from the training order of the same seed
  const auto order = epoch_order(n, mix_key(seed, kSplitStream), 0, true);
  std::vector<bool> held(static_cast<size_t>(n));
  for (int64_t i = 0; i < num_held; ++i)
    held[static_cast<size_t>(order[static_cast<size_t>(i)])] = true;
  Dataset train, val;
  train.files = val.files = all.files;
  train.warnings = std::move(all.warnings);
  train.num_dropped = all.num_dropped;
  for (size_t i = 0; i < held.size(); ++i)
    (held[i] ? val : train).rows.push_back(std::move(all.rows[i]));
  train.fingerprint = mix_key(all.fingerprint, mix_key(seed, 0));
  val.fingerprint = mix_key(all.fingerprint, mix_key(seed, 1));
  return {std::move(train), std::move(val)};
}

}  // namespace keel
