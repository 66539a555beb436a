#include "keel/observe/trace.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <mutex>
#include <vector>

#include "keel/base/json.h"
#include "keel/io/atomic_file.h"

namespace keel::trace {
namespace {

constexpr size_t kMaxEventsPerThread = 1 << 20;

struct Event {
  const char* name;
  const char* arg_name;  // nullptr: none
  int64_t start_ns;
  int64_t duration_ns;  // -1: a counter
  int64_t arg;
  double value;  // of a counter
};

// Events of one thread. Its lock is contended only while write() or start() looks at it.
struct Buffer {
  std::mutex mu;
  std::vector<Event> events;
  int64_t num_dropped = 0;
  std::string thread_name;
  int tid = 0;
};

struct Registry {
  std::mutex mu;
  std::vector<std::shared_ptr<Buffer>> buffers;
  int next_tid = 1;
  int64_t start_ns = 0;
};

// Never destroyed: detached threads may end after static destruction.
Registry& registry() {
  static auto* const r = new Registry;
  return *r;
}

Buffer& this_thread_buffer() {
  thread_local const std::shared_ptr<Buffer> buffer = [] {
    auto b = std::make_shared<Buffer>();
    auto& r = registry();
    const std::lock_guard lock(r.mu);
    b->tid = r.next_tid++;
    r.buffers.push_back(b);
    return b;
  }();
  return *buffer;
}

void record(const Event& event) {
  auto& buffer = this_thread_buffer();
  const std::lock_guard lock(buffer.mu);
  if (buffer.events.size() < kMaxEventsPerThread) {
    buffer.events.push_back(event);
  } else {
    ++buffer.num_dropped;
  }
}

std::string json_text(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string event_text(const Event& e, int pid, int tid, int64_t origin_ns) {
  const double start_us = static_cast<double>(e.start_ns - origin_ns) / 1e3;
  auto out = fmt::format(R"({{"name":{},"pid":{},"tid":{},"ts":{:.3f})", json_text(e.name), pid,
                         tid, start_us);
  if (e.duration_ns < 0) {
    const double value = std::isfinite(e.value) ? e.value : 0;
    return out + fmt::format(R"(,"ph":"C","args":{{"value":{}}}}})", value);
  }
  out += fmt::format(R"(,"ph":"X","dur":{:.3f})", static_cast<double>(e.duration_ns) / 1e3);
  if (e.arg_name != nullptr) {
    out += fmt::format(R"(,"args":{{{}:{}}})", json_text(e.arg_name), e.arg);
  }
  return out + "}";
}

std::string thread_name_text(const Buffer& b, int pid) {
  const auto name = b.thread_name.empty() ? fmt::format("thread {}", b.tid) : b.thread_name;
  return fmt::format(R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}})",
                     pid, b.tid, json_text(name));
}

}  // namespace

namespace internal {

std::atomic<bool> recording = false;

int64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

void record_span(const char* name, int64_t start_ns, const char* arg_name, int64_t arg) {
  record({name, arg_name, start_ns, now_ns() - start_ns, arg, 0});
}

}  // namespace internal

void start() {
  auto& r = registry();
  const std::lock_guard lock(r.mu);
  // Buffers of threads that are gone are held by the registry alone.
  std::erase_if(r.buffers, [](const auto& b) { return b.use_count() == 1; });
  for (const auto& b : r.buffers) {
    const std::lock_guard buffer_lock(b->mu);
    b->events.clear();
    b->num_dropped = 0;
  }
  r.start_ns = internal::now_ns();
  internal::recording = true;
}

void stop() { internal::recording = false; }

void set_thread_name(const std::string& name) {
  auto& buffer = this_thread_buffer();
  const std::lock_guard lock(buffer.mu);
  buffer.thread_name = name;
}

void counter(const char* name, double value) {
  if (enabled()) record({name, nullptr, internal::now_ns(), -1, 0, value});
}

void write(const std::string& path) {
  auto& r = registry();
  const std::lock_guard lock(r.mu);
  const int pid = ::getpid();
  int64_t num_dropped = 0;
  AtomicWriter out(path);
  out.write("{\"traceEvents\":[\n");
  std::string separator;
  for (const auto& b : r.buffers) {
    const std::lock_guard buffer_lock(b->mu);
    if (b->events.empty()) continue;
    num_dropped += b->num_dropped;
    out.write(separator + thread_name_text(*b, pid));
    separator = ",\n";
    for (const auto& e : b->events) {
      // A span that an earlier recording began belongs to that one.
      if (e.start_ns >= r.start_ns) out.write(separator + event_text(e, pid, b->tid, r.start_ns));
    }
  }
  out.write(
      fmt::format("\n],\"displayTimeUnit\":\"ms\",\"otherData\":{{\"num_dropped_events\":{}}}}}\n",
                  num_dropped));
  out.commit();
}

}  // namespace keel::trace
