// One Python process that runs a user's reward function: started in a process group of its own,
// spoken to over a socket without blocking, killed with all that it started.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

#include "keel/base/json.h"

namespace keel {

struct WorkerCommand {
  std::string python, file, function;
  double timeout_s = 0;
  std::string log_path;  // what the user's code prints goes there; "" = nowhere
};

class WorkerProcess {
 public:
  using Clock = std::chrono::steady_clock;
  enum class State { kDown, kStarting, kIdle, kBusy };

  WorkerProcess() = default;
  ~WorkerProcess() { stop(); }
  WorkerProcess(const WorkerProcess&) = delete;

  // Throws keel::Error if the process cannot be started at all.
  void start(const WorkerCommand& command, Clock::time_point deadline);
  void send(const Json& message, Clock::time_point deadline);

  // Kills the process group and collects the process. Says how it had ended, e.g. "signal 11".
  std::string stop();

  // For poll(): the socket, and whether bytes are left to write.
  int fd() const { return fd_; }
  bool wants_write() const { return written_ < outgoing_.size(); }

  // Moves bytes. Returns a message if one is complete; sets closed() when the process hung up.
  std::optional<Json> pump();
  bool closed() const { return closed_; }

  State state = State::kDown;
  Clock::time_point deadline;
  size_t task = 0;  // the caller's

 private:
  int fd_ = -1;
  pid_t pid_ = -1;
  bool closed_ = false;
  std::string outgoing_, incoming_;
  size_t written_ = 0;
};

}  // namespace keel
