// What a run leaves on disk and on the screen. Only rank 0 writes; the others' calls do nothing.
//
// <run>/{config.yaml, metrics.jsonl, events.out.tfevents.*, samples/step_N.jsonl,
// samples/val_N.jsonl, log.txt, report.html}
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "keel/base/json.h"
#include "keel/observe/console.h"
#include "keel/observe/metrics_file.h"
#include "keel/observe/step_record.h"
#include "keel/observe/tensorboard.h"
#include "keel/rl/experience.h"
#include "keel/rl/prompts.h"
#include "keel/rl/train_config.h"

namespace keel::rl {

// One answer as verl dumps it, plus what a replay needs: ids, log-probs, how they were drawn.
OrderedJson sample_row(int64_t step, const Experience& e, const PromptSet& set);

// What the rows of a step's answers tell about the step.
struct StepSamples {
  int64_t num_answers = 0;  // on all ranks; more than rows when not all are written
  int64_t gen_batches = 1;
};

class RunFiles {
 public:
  // Creates the folder. Throws Error(kResource) if it cannot be written, Error(kInvalid) if it
  // holds a run and trainer.resume is never.
  RunFiles(std::string folder, int rank, const TrainerSection& config,
           const std::string& config_yaml);

  // Before the first record; resume_step: later records of an earlier process are dropped.
  void open_records(std::optional<int64_t> resume_step, int64_t num_steps);

  Console& console() { return *console_; }
  // Appends the record everywhere and refreshes report.html now and then.
  void add(const StepRecord& record);
  void write_samples(int64_t step, std::span<const Experience> batch, const PromptSet& set,
                     const StepSamples& info);
  void write_validation(int64_t step, std::span<const Experience> batch, const PromptSet& set);
  void finish();
  const std::string& folder() const { return folder_; }

 private:
  bool writes() const { return rank_ == 0; }
  void write_file(const std::string& name, int64_t step, std::span<const Experience> batch,
                  const PromptSet& set, const OrderedJson& more);

  std::string folder_;
  int rank_;
  int64_t log_samples_;
  std::unique_ptr<Console> console_;
  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<TensorBoardWriter> events_;
};

}  // namespace keel::rl
