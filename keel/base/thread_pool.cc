#include "keel/base/thread_pool.h"

#include <sched.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "keel/base/cpu.h"
#include "keel/base/error.h"

namespace keel {
namespace {

// About 50 us of spinning: longer than the gap between two regions of one decode step.
constexpr int kSpins = 20000;

thread_local bool in_task = false;

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

// A region is open while indices are left. A worker counts itself in before it looks at the task;
// one that wakes too late finds the gate closed and sleeps again, so that nobody waits for a thread
// that the machine has no core for.
struct ThreadPool::State {
  using Task = FunctionRef<void(int64_t, int)>;
  // The indices of one thread: it takes them from the front, and so do threads that have no more
  // of their own.
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  static constexpr uint32_t kOpen = 1u << 31;  // the bits below count workers inside

  std::vector<std::thread> workers;
  std::mutex region_mutex;  // one parallel region at a time
  alignas(64) std::atomic<uint32_t> generation{0};
  alignas(64) std::atomic<uint32_t> gate{0};
  std::vector<Share> shares;  // one a thread
  int num_shares = 0;         // in use by this region: all, or 1 where order matters
  std::atomic<bool> stop{false};
  const Task* task = nullptr;
  std::mutex error_mutex;
  std::exception_ptr error;

  void drain(int thread) {
    in_task = true;
    try {
      for (int s = 0; s < num_shares; ++s) {
        Share& share = shares[(thread + s) % num_shares];
        for (int64_t i; (i = share.next.fetch_add(1, std::memory_order_relaxed)) < share.end;)
          (*task)(i, thread);
      }
    } catch (...) {
      const std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
      for (int s = 0; s < num_shares; ++s)
        shares[s].next.store(shares[s].end, std::memory_order_relaxed);
    }
    in_task = false;
  }

  bool enter() {
    uint32_t seen = gate.load(std::memory_order_relaxed);
    while (seen & kOpen) {
      if (gate.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire)) return true;
    }
    return false;
  }

  void leave() {
    if (gate.fetch_sub(1, std::memory_order_release) == 1) gate.notify_one();
  }

  void work(int thread) {
    set_flush_denormals();
    uint32_t seen = 0;
    while (true) {
      for (int s = 0; s < kSpins && generation.load(std::memory_order_acquire) == seen; ++s)
        pause_cpu();
      generation.wait(seen, std::memory_order_acquire);
      seen = generation.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_acquire)) return;
      if (!enter()) continue;
      drain(thread);
      leave();
    }
  }

  void open(int64_t num_indices, int parts, const Task& fn) {
    task = &fn;
    num_shares = parts;
    for (int s = 0; s < parts; ++s) {
      shares[s].next.store(num_indices * s / parts, std::memory_order_relaxed);
      shares[s].end = num_indices * (s + 1) / parts;
    }
    gate.store(kOpen, std::memory_order_release);
    generation.fetch_add(1, std::memory_order_acq_rel);
    generation.notify_all();
  }

  void close() {
    gate.fetch_and(~kOpen, std::memory_order_relaxed);
    for (int s = 0; s < kSpins; ++s) {
      if (gate.load(std::memory_order_acquire) == 0) return;
      pause_cpu();
    }
    for (uint32_t seen; (seen = gate.load(std::memory_order_acquire)) != 0;)
      gate.wait(seen, std::memory_order_acquire);
  }
};

ThreadPool::ThreadPool(int num_threads) : num_threads_(num_threads), state_(new State) {
  KEEL_REQUIRE(num_threads >= 1, "[threads] expected at least 1, got {}", num_threads);
  set_flush_denormals();
  state_->shares = std::vector<State::Share>(static_cast<size_t>(num_threads));
  for (int t = 1; t < num_threads; ++t)
    state_->workers.emplace_back([this, t] { state_->work(t); });
}

ThreadPool::~ThreadPool() {
  state_->stop.store(true, std::memory_order_release);
  state_->generation.fetch_add(1, std::memory_order_acq_rel);
  state_->generation.notify_all();
  for (auto& w : state_->workers) w.join();
}

void ThreadPool::run(int64_t count, int shares, FunctionRef<void(int64_t, int)> fn) {
  if (count <= 0) return;
  if (num_threads_ == 1 || count == 1 || in_task) {
    for (int64_t i = 0; i < count; ++i) fn(i, 0);
    return;
  }
  const std::lock_guard lock(state_->region_mutex);
  state_->open(count, shares, fn);
  state_->drain(0);
  state_->close();
  if (state_->error) std::rethrow_exception(std::exchange(state_->error, nullptr));
}

namespace {

std::optional<ThreadPool>& pool_slot() {
  static std::optional<ThreadPool> pool;
  return pool;
}

}  // namespace

ThreadPool& compute_pool() {
  auto& slot = pool_slot();
  if (!slot) slot.emplace(num_allowed_cpus());
  return *slot;
}

void set_num_threads(int num_threads) {
  auto& slot = pool_slot();
  if (slot && slot->num_threads() == num_threads) return;
  slot.reset();
  slot.emplace(num_threads);
}

}  // namespace keel
