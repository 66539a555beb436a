#include "keel/parallel/launch.h"

#include <charconv>
#include <limits>
#include <string_view>

#include "keel/base/error.h"

namespace keel::parallel {
namespace {

constexpr int kMaxInt = std::numeric_limits<int>::max();

int parse(const std::string& name, const std::string& text, int low, int high) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  KEEL_REQUIRE(
      error == std::errc{} && end == text.data() + text.size() && value >= low && value <= high,
      "[{}] expected an integer in [{}, {}], got '{}'; try starting the job with mpirun, "
      "srun or torchrun --no-python",
      name, low, high, text);
  return value;
}

int required(const Environment& env, const std::string& name, int low, int high) {
  const auto text = env(name);
  KEEL_REQUIRE(text, "[{}] expected a value, got none; try starting the job with its launcher",
               name);
  return parse(name, *text, low, high);
}

int optional(const Environment& env, const std::string& name, int low, int high, int otherwise) {
  const auto text = env(name);
  return text ? parse(name, *text, low, high) : otherwise;
}

// Below Linux's ephemeral ports, so that no outgoing connection holds it. FNV-1a.
uint16_t port_of(std::string_view job) {
  uint32_t hash = 2166136261u;
  for (const char c : job) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  return static_cast<uint16_t>(20000 + hash % 12000);
}

void read_place(const Environment& env, const std::string& size_name, const std::string& rank_name,
                Launch& launch) {
  launch.size = required(env, size_name, 1, kMaxInt);
  launch.rank = required(env, rank_name, 0, launch.size - 1);
}

bool read_torchrun(const Environment& env, Launch& launch) {
  if (!env("RANK") || !env("WORLD_SIZE")) return false;
  read_place(env, "WORLD_SIZE", "RANK", launch);
  const int local_size = optional(env, "LOCAL_WORLD_SIZE", 1, launch.size, launch.size);
  launch.one_machine = local_size == launch.size;
  launch.job = "torchrun" + env("TORCHELASTIC_RUN_ID").value_or("") + "." +
               env("TORCHELASTIC_RESTART_COUNT").value_or("0");
  launch.serves_store =
      launch.rank == 0 && env("TORCHELASTIC_USE_AGENT_STORE").value_or("") != "True";
  KEEL_REQUIRE(launch.size == 1 || (env("MASTER_ADDR") && env("MASTER_PORT")),
               "[MASTER_ADDR, MASTER_PORT] expected both beside RANK and WORLD_SIZE, got one or "
               "none; try torchrun --no-python, or setting them to rank 0's host and a free port");
  return true;
}

bool read_mpirun(const Environment& env, Launch& launch) {
  if (!env("OMPI_COMM_WORLD_SIZE")) return false;
  read_place(env, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", launch);
  const int local_size = optional(env, "OMPI_COMM_WORLD_LOCAL_SIZE", 1, launch.size, launch.size);
  launch.one_machine = local_size == launch.size;
  launch.job =
      "mpirun" + env("PMIX_NAMESPACE").value_or(env("OMPI_MCA_ess_base_jobid").value_or(""));
  launch.serves_store = launch.rank == 0;
  return true;
}

// The step's variables, not SLURM_NTASKS: that is also set where no task was started, as in a
// batch script.
bool read_srun(const Environment& env, Launch& launch) {
  if (!env("SLURM_STEP_NUM_TASKS")) return false;
  read_place(env, "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", launch);
  launch.one_machine = optional(env, "SLURM_STEP_NUM_NODES", 1, kMaxInt, 1) == 1;
  launch.job = "srun" + env("SLURM_JOB_ID").value_or("") + "." + env("SLURM_STEP_ID").value_or("");
  launch.serves_store = launch.rank == 0;
  return true;
}

}  // namespace

Launch read_launch(const Environment& env) {
  Launch launch;
  const bool launched =
      read_torchrun(env, launch) || read_mpirun(env, launch) || read_srun(env, launch);
  if (!launched || launch.size == 1) return {};
  const auto address = env("MASTER_ADDR");
  KEEL_REQUIRE(launch.one_machine || address,
               "[MASTER_ADDR] expected rank 0's host name (the ranks run on several machines), got "
               "none; try MASTER_ADDR=<host> before the launcher (mpirun -x MASTER_ADDR)");
  launch.address = address.value_or(launch.address);
  const int port = optional(env, "MASTER_PORT", 1, 65535, port_of(launch.job));
  launch.port = static_cast<uint16_t>(optional(env, "KEEL_MASTER_PORT", 1, 65535, port));
  launch.timeout_s = optional(env, "KEEL_COLLECTIVE_TIMEOUT_S", 1, 1 << 20, launch.timeout_s);
  launch.interface = env("GLOO_SOCKET_IFNAME").value_or("");
  return launch;
}

}  // namespace keel::parallel
