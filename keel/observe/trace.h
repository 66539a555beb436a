// Chrome trace (chrome://tracing, ui.perfetto.dev) of where a run's time goes. One recorder a
// process, off by default: a span then costs one relaxed load. All functions may be called from any
// thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace keel::trace {

namespace internal {
extern std::atomic<bool> recording;
void record_span(const char* name, int64_t start_ns, const char* arg_name, int64_t arg);
int64_t now_ns();
}  // namespace internal

// Forgets earlier events and records from now on. At most 2^20 events a thread are kept; more are
// counted in the file's otherData.num_dropped_events.
void start();
void stop();
inline bool enabled() { return internal::recording.load(std::memory_order_relaxed); }

// Writes what was recorded since start(), atomically. Throws keel::Error kResource.
void write(const std::string& path);

// Name of the calling thread in the trace (remembered also while not recording).
void set_thread_name(const std::string& name);

// A value over time, shown as a graph. `name` is a literal.
void counter(const char* name, double value);

// The time from construction to destruction, with at most one number to show beside it:
//   trace::Span span("prefill", "tokens", num_tokens);
// Names are literals (kept by pointer). Must end on the thread that it began on.
class Span {
 public:
  explicit Span(const char* name, const char* arg_name = nullptr, int64_t arg = 0)
      : name_(name), arg_name_(arg_name), arg_(arg) {
    if (enabled()) start_ns_ = internal::now_ns();
  }
  ~Span() {
    if (start_ns_ >= 0) internal::record_span(name_, start_ns_, arg_name_, arg_);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  const char* name_;
  const char* arg_name_;
  int64_t arg_;
  int64_t start_ns_ = -1;
};

}  // namespace keel::trace
