// Real ranks for tests: the test program starts itself again, once a rank, on this machine.
// Header-only and for *_test.cc files.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "keel/base/env.h"
#include "keel/base/error.h"

namespace keel::test {

// Nothing of the launcher that may have started this program.
inline std::vector<std::string> clean_environment() {
  std::vector<std::string> variables;
  for (const char* name : {"PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH"}) {
    if (const auto value = env(name)) variables.push_back(fmt::format("{}={}", name, *value));
  }
  return variables;
}

// The process id, or -1 if there is no such program.
inline pid_t spawn(std::vector<std::string> command, std::vector<std::string> environment) {
  const auto pointers = [](std::vector<std::string>& strings) {
    std::vector<char*> out;
    for (std::string& s : strings) out.push_back(s.data());
    out.push_back(nullptr);
    return out;
  };
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, command[0].c_str(), nullptr, nullptr,
                                 pointers(command).data(), pointers(environment).data());
  return error == 0 ? pid : -1;
}

inline std::string this_program() { return std::filesystem::read_symlink("/proc/self/exe"); }

inline int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  KEEL_CHECK(bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0, "no free port");
  KEEL_CHECK(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0, "no port");
  close(fd);
  return ntohs(address.sin_port);
}

// Runs this program with `arguments` as ranks [0, started) of a job of `size`; returns their wait
// statuses. variables: more of the environment, as NAME=value.
inline std::vector<int> run_ranks(const std::vector<std::string>& arguments, int size, int started,
                                  int port, const std::vector<std::string>& variables) {
  std::vector<pid_t> pids;
  for (int r = 0; r < started; ++r) {
    auto environment = clean_environment();
    for (const std::string& text :
         {fmt::format("RANK={}", r), fmt::format("WORLD_SIZE={}", size),
          fmt::format("MASTER_PORT={}", port), std::string("MASTER_ADDR=127.0.0.1")}) {
      environment.push_back(text);
    }
    environment.insert(environment.end(), variables.begin(), variables.end());
    std::vector<std::string> command = {this_program()};
    command.insert(command.end(), arguments.begin(), arguments.end());
    pids.push_back(spawn(std::move(command), environment));
  }
  std::vector<int> statuses(static_cast<size_t>(started), -1);
  for (size_t r = 0; r < pids.size(); ++r) {
    if (pids[r] > 0) waitpid(pids[r], &statuses[r], 0);
  }
  return statuses;
}

}  // namespace keel::test
