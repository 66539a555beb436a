#include "keel/rl/run_files.h"

#include <algorithm>
#include <filesystem>

#include "keel/base/error.h"
#include "keel/base/log.h"
#include "keel/io/atomic_file.h"
#include "keel/observe/report.h"

namespace keel::rl {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kReportEverySteps = 10;

void make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error)
    throw Error(ErrorKind::kResource,
                fmt::format("[{}] cannot create the folder: {}; try another trainer.run_dir", path,
                            error.message()));
}

}  // namespace

OrderedJson sample_row(int64_t step, const Experience& e, const PromptSet& set) {
  const auto row = static_cast<size_t>(e.row);
  OrderedJson out = {{"input", set.prompts[row].text},
                     {"output", e.text},
                     {"gts", set.data.rows[row].ground_truth},
                     {"score", e.score.value},
                     {"reward", e.reward},
                     {"step", step},
                     {"uid", fmt::format("{}-{}", e.row, e.group)},
                     {"stop_reason", rollout::to_string(e.sample.stop_reason)},
                     {"ids", std::vector<int32_t>(e.sample.ids.begin(), e.sample.ids.end())},
                     {"num_prompt", e.sample.num_prompt},
                     {"log_probs", e.sample.log_probs},
                     {"temperature", e.sample.params.temperature},
                     {"numerics_id", e.sample.numerics_id}};
  if (!e.sample.kept_offsets.empty()) {
    out["kept_ids"] = e.sample.kept_ids;
    out["kept_offsets"] = e.sample.kept_offsets;
  }
  const auto& mask = e.sample.loss_mask;
  if (std::find(mask.begin(), mask.end(), 0) != mask.end()) out["loss_mask"] = mask;
  if (!e.score.extra.is_null()) out["extra"] = e.score.extra;
  if (!e.score.error.empty()) out["reward_error"] = e.score.error;
  return out;
}

RunFiles::RunFiles(std::string folder, int rank, const TrainerSection& config,
                   const std::string& config_yaml)
    : folder_(std::move(folder)), rank_(rank), log_samples_(config.log_samples) {
  if (!writes()) return;
  std::error_code error;
  KEEL_REQUIRE(config.resume != "never" || !fs::exists(folder_ + "/metrics.jsonl", error),
               "[trainer.name] expected a new run, but {} holds one; try another trainer.name, or "
               "trainer.resume=auto "
               "to go on with it",
               folder_);
  make_folder(folder_ + "/samples");
  for (const char* sub : {"", "/samples"})
    remove_stale_temporaries(folder_ + sub);  // of a killed process
  write_file_atomic(folder_ + "/config.yaml", config_yaml);
  add_log_file(folder_ + "/log.txt");
}

void RunFiles::open_records(std::optional<int64_t> resume_step, int64_t num_steps) {
  ConsoleOptions options;
  options.num_steps = num_steps;
  if (!writes()) {
    options.out = nullptr;
    options.terminal = ConsoleOptions::Terminal::kNo;
  }
  console_ = std::make_unique<Console>(options);
  if (!writes()) return;
  metrics_ = std::make_unique<MetricsFile>(folder_ + "/metrics.jsonl", resume_step);
  events_ = std::make_unique<TensorBoardWriter>(folder_, resume_step);
}

void RunFiles::add(const StepRecord& record) {
  if (!writes()) return;
  metrics_->append(record);
  events_->add(record);
  console_->step(record);
  if (record.step() % kReportEverySteps == 0) write_report(folder_);
}

void RunFiles::write_samples(int64_t step, std::span<const Experience> batch, const PromptSet& set,
                             const StepSamples& info) {
  write_file("step", step, batch, set,
             {{"num_answers", info.num_answers}, {"gen_batches", info.gen_batches}});
}

void RunFiles::write_validation(int64_t step, std::span<const Experience> batch,
                                const PromptSet& set) {
  write_file("val", step, batch, set, OrderedJson::object());
}

// more: fields that all rows get.
void RunFiles::write_file(const std::string& name, int64_t step, std::span<const Experience> batch,
                          const PromptSet& set, const OrderedJson& more) {
  if (!writes() || log_samples_ == 0) return;
  if (log_samples_ > 0)
    batch = batch.first(std::min(batch.size(), static_cast<size_t>(log_samples_)));
  std::string text;
  for (const Experience& e : batch) {
    OrderedJson row = sample_row(step, e, set);
    row.update(more);
    text += row.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  write_file_atomic(fmt::format("{}/samples/{}_{}.jsonl", folder_, name, step), text);
}

void RunFiles::finish() {
  if (!writes()) return;
  const std::string report = write_report(folder_);
  spdlog::info("report: {}", report);
}

}  // namespace keel::rl
