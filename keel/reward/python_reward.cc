#include "keel/reward/python_reward.h"

#include <poll.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <numeric>

#include "keel/base/error.h"
#include "keel/reward/worker_process.h"

namespace keel {
namespace {

using Clock = WorkerProcess::Clock;
using State = WorkerProcess::State;

Clock::time_point after(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

WorkerCommand command_of(const PythonRewardOptions& o) {
  const auto colon = o.spec.rfind(':');
  const bool named = colon != std::string::npos && o.spec.find('/', colon) == std::string::npos;
  WorkerCommand c{o.python, named ? o.spec.substr(0, colon) : o.spec,
                  named ? o.spec.substr(colon + 1) : "compute_score", o.timeout_s, o.log_path};
  KEEL_REQUIRE(std::filesystem::is_regular_file(c.file),
               "[reward] expected a Python file, got '{}'; write file.py:function", c.file);
  KEEL_REQUIRE(!c.function.empty(), "[reward] expected a function name behind the colon of '{}'",
               o.spec);
  return c;
}

Json to_json(const RewardSample& s, const std::string& convention) {
  if (convention == "verl") {
    return {{"data_source", s.data_source},
            {"solution_str", s.solution},
            {"ground_truth", s.ground_truth},
            {"extra_info", s.extra_info}};
  }
  Json completion = s.solution;
  if (s.prompt.is_array())
    completion = Json::array({Json{{"role", "assistant"}, {"content", s.solution}}});
  auto columns = s.columns.is_object() ? s.columns : Json::object();
  if (!columns.contains("ground_truth") && !s.ground_truth.empty())
    columns["ground_truth"] = s.ground_truth;
  return {{"prompts", s.prompt},
          {"completions", std::move(completion)},
          {"completion_ids", s.token_ids},
          {"columns", std::move(columns)}};
}

}  // namespace

struct PythonReward::Impl {
  explicit Impl(const PythonRewardOptions& o)
      : options(o), command(command_of(o)), workers(static_cast<size_t>(o.num_workers)) {}

  using Task = std::vector<size_t>;  // sample indices

  PythonRewardOptions options;
  WorkerCommand command;
  std::vector<WorkerProcess> workers;
  std::string convention;
  PythonRewardCounts counts;

  // The call at hand.
  std::span<const RewardSample> samples;
  std::vector<PythonScore> results;
  std::vector<Task> tasks;
  std::deque<size_t> queue;  // of tasks
  std::string start_error;   // of the last worker that could not start

  void start(WorkerProcess& w) { w.start(command, after(options.start_timeout_s)); }

  void dispatch(WorkerProcess& w) {
    w.task = queue.front();
    queue.pop_front();
    auto list = Json::array();
    for (const auto i : tasks[w.task]) list.push_back(to_json(samples[i], convention));
    w.send({{"samples", std::move(list)}}, after(options.timeout_s));
  }

  // A call over several samples is tried again one by one, so that only the culprit pays.
  void fail(const Task& task, const std::string& error, int64_t& count) {
    if (task.size() > 1) {
      for (const auto i : task) {
        queue.push_back(tasks.size());
        tasks.push_back({i});
      }
      return;
    }
    ++count;
    results[task[0]] = {options.default_score, nullptr, error};
  }

  void take_hello(WorkerProcess& w, const Json& message) {
    if (message.contains("convention")) {
      convention = message["convention"];
      w.state = State::kIdle;
    } else {
      start_error = message.value("error", "no greeting");
      w.stop();
    }
  }

  void take_reply(WorkerProcess& w, const Json& message) {
    const auto task = tasks[w.task];  // fail() grows tasks
    w.state = State::kIdle;
    const auto scores = message.find("scores");
    if (scores == message.end() || !scores->is_array() || scores->size() != task.size()) {
      return fail(task, message.value("error", "a reply that is no reply"), counts.num_exceptions);
    }
    for (size_t k = 0; k < task.size(); ++k) {
      const auto& pair = (*scores)[k];
      auto& r = results[task[k]];
      if (pair[0].is_number()) r.score = pair[0].get<double>();
      if (!pair[1].empty()) r.extra = pair[1];
    }
  }

  // The worker hung up or ran out of time: what it was doing failed, and it is gone.
  void lose(WorkerProcess& w, bool timed_out) {
    const bool busy = w.state == State::kBusy;
    const auto task = busy ? tasks[w.task] : Task();
    const auto how = w.stop();
    if (!busy) {
      start_error = timed_out ? fmt::format("loading took more than {} s", options.start_timeout_s)
                              : fmt::format("the process ended while loading ({})", how);
    } else if (timed_out) {
      fail(task, fmt::format("took more than {} s", options.timeout_s), counts.num_timeouts);
    } else {
      fail(task, fmt::format("the process died ({})", how), counts.num_crashes);
    }
  }

  // Waits for something to happen and handles it.
  void step() {
    std::vector<pollfd> fds;
    std::vector<WorkerProcess*> polled;
    auto next = Clock::time_point::max();
    for (auto& w : workers) {
      if (w.state != State::kStarting && w.state != State::kBusy) continue;
      fds.push_back({w.fd(), static_cast<short>(POLLIN | (w.wants_write() ? POLLOUT : 0)), 0});
      polled.push_back(&w);
      next = std::min(next, w.deadline);
    }
    const auto wait =
        std::chrono::duration_cast<std::chrono::milliseconds>(next - Clock::now()).count() + 1;
    poll(fds.data(), fds.size(), static_cast<int>(std::clamp<int64_t>(wait, 0, 60000)));
    for (size_t i = 0; i < polled.size(); ++i) {
      auto& w = *polled[i];
      if (fds[i].revents != 0) {
        if (const auto message = w.pump()) {
          w.state == State::kStarting ? take_hello(w, *message) : take_reply(w, *message);
          continue;
        }
        if (w.closed()) {
          lose(w, false);
          continue;
        }
      }
      if (Clock::now() >= w.deadline) lose(w, true);
    }
  }

  bool any(State s) const {
    return std::any_of(workers.begin(), workers.end(),
                       [s](const WorkerProcess& w) { return w.state == s; });
  }

  void run() {
    int restarts_left = options.num_workers + static_cast<int>(2 * samples.size());
    while (!queue.empty() || any(State::kBusy)) {
      for (auto& w : workers) {
        if (queue.empty()) break;
        if (w.state == State::kIdle && gone_while_idle(w)) w.stop();
        if (w.state == State::kIdle) dispatch(w);
        if (w.state == State::kDown && restarts_left > 0 && start_error.empty()) {
          --restarts_left;
          start(w);
        }
      }
      if (!any(State::kBusy) && !any(State::kStarting)) {
        if (any(State::kIdle)) continue;
        return give_up();
      }
      step();
    }
  }

  // No sample is to blame for a worker that died between two calls.
  static bool gone_while_idle(WorkerProcess& w) {
    w.pump();
    return w.closed();
  }

  // No worker can be started any more.
  void give_up() {
    for (; !queue.empty(); queue.pop_front()) {
      for (const auto i : tasks[queue.front()]) {
        ++counts.num_crashes;
        results[i] = {options.default_score, nullptr, "no worker could be started: " + start_error};
      }
    }
  }
};

PythonReward::PythonReward(const PythonRewardOptions& options)
    : impl_(std::make_unique<Impl>(options)) {
  KEEL_REQUIRE(options.num_workers >= 1 && options.timeout_s > 0 && options.batch_samples >= 1,
               "[reward] expected at least one worker, one sample a call and a timeout above 0, "
               "got {}, {}, {} s",
               options.num_workers, options.batch_samples, options.timeout_s);
  for (auto& w : impl_->workers) impl_->start(w);
  while (impl_->any(State::kStarting)) impl_->step();
  KEEL_REQUIRE(impl_->start_error.empty(), "[reward] {}: {}", options.spec, impl_->start_error);
}

PythonReward::~PythonReward() = default;

std::vector<PythonScore> PythonReward::score(std::span<const RewardSample> samples) {
  auto& m = *impl_;
  m.samples = samples;
  m.results.assign(samples.size(), {});
  m.tasks.clear();
  m.queue.clear();
  m.start_error.clear();
  const size_t batch = m.convention == "trl" ? static_cast<size_t>(m.options.batch_samples) : 1;
  for (size_t i = 0; i < samples.size(); i += batch) {
    Impl::Task task(std::min(batch, samples.size() - i));
    std::iota(task.begin(), task.end(), i);
    m.queue.push_back(m.tasks.size());
    m.tasks.push_back(std::move(task));
  }
  m.counts.num_samples += static_cast<int64_t>(samples.size());
  m.run();
  m.samples = {};
  return std::move(m.results);
}

const std::string& PythonReward::convention() const { return impl_->convention; }
const PythonRewardCounts& PythonReward::counts() const { return impl_->counts; }

}  // namespace keel
