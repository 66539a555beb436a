#include "keel/reward/worker_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "keel/base/error.h"
#include "keel/reward/worker_script.h"

extern char** environ;

namespace keel {
namespace {

constexpr size_t kMaxReplyBytes = size_t{64} << 20;
constexpr int kChildFd = 3;

pid_t spawn(const WorkerCommand& c, int child_fd) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  const char* log = c.log_path.empty() ? "/dev/null" : c.log_path.c_str();
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log, O_WRONLY | O_CREAT | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&files, child_fd, kChildFd);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setpgroup(&attributes, 0);
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  for (const int s : {SIGALRM, SIGPIPE, SIGTERM, SIGINT}) sigaddset(&signals, s);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  const auto seconds = fmt::format("{}", c.timeout_s);
  const char* argv[] = {c.python.c_str(), "-u",           "-c",
                        kWorkerScript,    c.file.c_str(), c.function.c_str(),
                        seconds.c_str(),  nullptr};
  pid_t pid = -1;
  const int error =
      posix_spawnp(&pid, c.python.c_str(), &files, &attributes, const_cast<char**>(argv), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  KEEL_REQUIRE(error == 0, "[reward] cannot start '{}': {}; try reward.python=/path/to/python3",
               c.python, std::strerror(error));
  return pid;
}

}  // namespace

void WorkerProcess::start(const WorkerCommand& command, Clock::time_point by) {
  stop();
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    throw Error(ErrorKind::kResource,
                fmt::format("[reward] no socket for a worker: {}", std::strerror(errno)));
  }
  // dup2 onto itself would keep close-on-exec; move the child's end out of the way.
  const int child = fcntl(fds[1], F_DUPFD_CLOEXEC, kChildFd + 1);
  close(fds[1]);
  try {
    pid_ = spawn(command, child);
  } catch (...) {
    close(child);
    close(fds[0]);
    throw;
  }
  close(child);
  fd_ = fds[0];
  fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
  state = State::kStarting;
  deadline = by;
}

void WorkerProcess::send(const Json& message, Clock::time_point by) {
  const auto body = message.dump(-1, ' ', false, Json::error_handler_t::replace);
  const auto length = static_cast<uint32_t>(body.size());
  outgoing_.assign(reinterpret_cast<const char*>(&length), sizeof length);
  outgoing_ += body;
  written_ = 0;
  state = State::kBusy;
  deadline = by;
}

std::string WorkerProcess::stop() {
  if (pid_ < 0) return "not running";
  int status = 0;
  const bool ended = waitpid(pid_, &status, WNOHANG) == pid_;
  kill(-pid_, SIGKILL);  // what it forked, too
  if (!ended) {
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
  }
  close(fd_);
  fd_ = -1;
  pid_ = -1;
  closed_ = false;
  outgoing_.clear();
  incoming_.clear();
  written_ = 0;
  state = State::kDown;
  if (WIFSIGNALED(status)) return fmt::format("signal {}", WTERMSIG(status));
  return fmt::format("exit code {}", WEXITSTATUS(status));
}

std::optional<Json> WorkerProcess::pump() {
  while (written_ < outgoing_.size()) {
    const auto n =
        ::send(fd_, outgoing_.data() + written_, outgoing_.size() - written_, MSG_NOSIGNAL);
    if (n < 0) {
      closed_ |= errno != EAGAIN && errno != EINTR;
      break;
    }
    written_ += static_cast<size_t>(n);
  }
  char buffer[1 << 16];
  for (;;) {
    const auto n = recv(fd_, buffer, sizeof buffer, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) closed_ = true;
    if (n <= 0) break;
    incoming_.append(buffer, static_cast<size_t>(n));
    if (incoming_.size() > kMaxReplyBytes) {
      closed_ = true;
      return std::nullopt;
    }
  }
  uint32_t length = 0;
  if (incoming_.size() < sizeof length) return std::nullopt;
  std::memcpy(&length, incoming_.data(), sizeof length);
  if (incoming_.size() < sizeof length + length) return std::nullopt;
  auto message = Json::parse(incoming_.begin() + sizeof length,
                             incoming_.begin() + sizeof length + length, nullptr, false);
  incoming_.erase(0, sizeof length + length);
  closed_ |= message.is_discarded();
  if (message.is_discarded()) return std::nullopt;
  return message;
}

}  // namespace keel
