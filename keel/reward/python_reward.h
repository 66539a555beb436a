// Reward functions that users write in Python, with verl's signature
//   compute_score(data_source, solution_str, ground_truth, extra_info=None) -> float | {"score":
//   float, ...}
// or TRL's
//   f(prompts, completions, completion_ids=None, **columns) -> list[float | None]
// (told apart by their parameters; async functions too). They run in worker processes: whatever the
// code does (raise, loop, fork, print, crash), the run goes on and the sample gets a default score.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "keel/base/json.h"

namespace keel {

struct PythonRewardOptions {
  std::string spec;                // "file.py:function"; the function defaults to compute_score
  std::string python = "python3";  // found on PATH
  int num_workers = 2;
  double timeout_s = 30;         // of one call
  double start_timeout_s = 120;  // of loading the file
  double default_score = 0;      // for samples whose call failed
  int batch_samples = 16;        // TRL functions get up to this many completions a call
  std::string log_path;          // what the code prints is appended there; "" = nowhere
};

struct RewardSample {
  std::string data_source;
  std::string solution;  // the generated text
  std::string ground_truth;
  Json extra_info;                 // null if none
  Json prompt;                     // a string, or a list of messages (then completions are, too)
  std::vector<int32_t> token_ids;  // of the completion; may be empty
  Json columns;                    // TRL: other columns of the row, an object or null
};

struct PythonScore {
  std::optional<double> score;  // nullopt: a TRL function said None (does not apply)
  Json extra;                   // the other keys of a verl dict, or null
  std::string error;            // why default_score stands here, or ""
};

struct PythonRewardCounts {
  int64_t num_samples = 0, num_exceptions = 0, num_timeouts = 0, num_crashes = 0;
};

class PythonReward {
 public:
  // Starts the workers and loads the file. Throws keel::Error if the file, the function or its
  // signature is not usable.
  explicit PythonReward(const PythonRewardOptions& options);
  ~PythonReward();

  // One result for each sample, in order. Blocks; one caller at a time. Does not throw for what
  // the user's code does.
  std::vector<PythonScore> score(std::span<const RewardSample> samples);

  // "verl" or "trl".
  const std::string& convention() const;
  const PythonRewardCounts& counts() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace keel
