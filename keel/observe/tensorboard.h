// TensorBoard events: scalars, histograms and texts of a run in events.out.tfevents.*.
// Format: TFRecord frames around tensorflow.Event messages (tensorflow/core/util/event.proto and
// framework/summary.proto).
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "keel/observe/step_record.h"

namespace keel {

// Every call reaches the file before it returns. Not thread-safe. Errors (disk full, read-only):
// keel::Error kResource.
class TensorBoardWriter {
 public:
  // A new file in `folder` (which exists). With `resume_step`, readers forget what earlier files of
  // the folder hold of steps > resume_step.
  explicit TensorBoardWriter(const std::string& folder,
                             std::optional<int64_t> resume_step = std::nullopt);

  // All metrics as scalars (f32) and all histograms.
  void add(const StepRecord& record);

  // Shown as Markdown under "Text", for example a sample with its score.
  void add_text(int64_t step, std::string_view tag, std::string_view text);

  const std::string& path() const { return path_; }

 private:
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  void write_event(std::string_view event);

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace keel
