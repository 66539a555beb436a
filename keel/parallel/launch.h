// What the launcher's environment says about this process's place in the job.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace keel::parallel {

struct Launch {
  int rank = 0;
  int size = 1;
  bool one_machine = true;
  std::string address = "127.0.0.1";  // where the store listens
  uint16_t port = 0;
  std::string job;            // prefix of the store's keys: two jobs can meet at one port
  bool serves_store = false;  // rank 0, unless torchrun's agent does
  int timeout_s = 600;
  std::string interface;  // GLOO_SOCKET_IFNAME: network interface for the data, "" = by host name
};

using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// The innermost launcher wins: torchrun's variables, then mpirun's (Open MPI), then srun's. A
// process that none of them started is alone. Throws Error(kInvalid).
Launch read_launch(const Environment& env);

}  // namespace keel::parallel
