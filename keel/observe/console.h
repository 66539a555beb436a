// What a person watching a run sees: one line of columns per step, and on a terminal a status line
// with progress and remaining time for phases that last over two seconds.
//
//     step    reward   accuracy  length  entropy        kl  grad norm        lr    tok/s  s/step
//     eta
//   12/100     0.812      0.750   123.4    0.312  1.20e-04      0.512  1.00e-05    1,234   12.30
//   18m02
//
// Columns of metrics that no step has set are left out. Where the output is not a terminal, no
// escape codes and no status line are written.
#pragma once

#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "keel/observe/step_record.h"

namespace keel {

struct ConsoleOptions {
  enum class Terminal { kDetect, kYes, kNo };

  std::FILE* out = stderr;  // stays open
  Terminal terminal = Terminal::kDetect;
  int64_t num_steps = 0;          // of the run; 0 = unknown, then no ETA
  std::function<double()> now_s;  // monotonic seconds; for tests
  int header_every_steps = 20;
};

// Any thread may call. While one exists on a terminal, log lines that the default logger writes do
// not run into the status line; construct and destroy it while no other thread logs.
class Console {
 public:
  explicit Console(ConsoleOptions options);
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // A phase of step `step` begins ("generate"), an earlier one ends. total: units of work, 0 =
  // unknown.
  void phase(int64_t step, std::string_view name, int64_t total = 0, std::string_view unit = "");
  // Work done in this phase so far; redraws the status line at most ten times a second.
  void progress(int64_t done);
  // The phase ends, the status line goes.
  void end_phase();

  // The line of a finished step, and one more for its validation if there was one.
  void step(const StepRecord& record);

  // Removes the status line so that something else can be written.
  void clear_status();

 private:
  struct Column;
  struct Phase {
    int64_t step = 0;
    std::string name, unit;
    int64_t total = 0;
    double start_s = 0, drawn_s = 0;
  };
  static const std::vector<Column>& columns();
  void clear_status_locked();
  void print(const std::string& line);
  std::string status_text(int64_t done, double now) const;
  std::string eta_text(int64_t step) const;

  ConsoleOptions options_;
  bool terminal_ = false;
  std::mutex mu_;
  std::unique_ptr<Phase> phase_;  // guarded by mu_, as all below
  bool status_shown_ = false;
  std::vector<char> column_seen_;     // parallel to columns()
  int64_t lines_since_header_ = -1;   // -1: no header yet
  std::deque<double> recent_step_s_;  // at most 10
  std::shared_ptr<void> log_sink_;    // clears the status line before each log line
};

// "8s", "4m05", "3h07", "2d03h"; "" for a negative or not finite number.
std::string format_duration(double seconds);
// "1,234,567"
std::string format_thousands(double value);

}  // namespace keel
