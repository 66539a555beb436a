// The process's compute threads. Work is split over outputs only, so results never depend on the
// number of threads. Idle workers spin for some microseconds before they sleep: a decode step has
// dozens of parallel regions of a few microseconds each.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace keel {

// Non-owning callable reference; lives as long as the call that it is passed to.
template <class Signature>
class FunctionRef;
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
      FunctionRef(F&& f)  // NOLINT: implicit by design
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* o, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(o))(static_cast<Args&&>(args)...);
        }) {}
  R operator()(Args... args) const { return call_(object_, static_cast<Args&&>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);  // >= 1; the caller is thread 0
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // Runs fn(index, thread) for every index in [0, count); thread is in [0, num_threads()). Blocks
  // until all are done; rethrows the first exception. Not re-entrant: called from inside a task it
  // runs on the calling thread alone.
  //
  // Thread t begins with the t-th part of the indices and then helps the others: regions whose
  // indices go over the same rows find them in the same core's cache.
  void parallel_for(int64_t count, FunctionRef<void(int64_t index, int thread)> fn) {
    run(count, num_threads_, fn);
  }
  // Indices are taken in order, whoever is free, so a task may wait for one with a lower index.
  void parallel_in_order(int64_t count, FunctionRef<void(int64_t index, int thread)> fn) {
    run(count, 1, fn);
  }

 private:
  void run(int64_t count, int shares, FunctionRef<void(int64_t, int)> fn);

  struct State;
  int num_threads_;
  std::unique_ptr<State> state_;
};

// The pool that ops use. One per process because the machine's cores are; set once at start-up
// (set_num_threads is for tests and benchmarks; not while work is running). Default: all CPUs
// allowed.
ThreadPool& compute_pool();
void set_num_threads(int num_threads);

}  // namespace keel
