#include "keel/parallel/launch.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "keel/base/error.h"
#include "keel/parallel/cpu_share.h"

namespace keel::parallel {
namespace {

using Variables = std::map<std::string, std::string>;

Launch read(const Variables& variables) {
  return read_launch([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string refusal(const Variables& variables) {
  try {
    read(variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalid);
    return error.what();
  }
  return "none";
}

const Variables kMpirun = {{"OMPI_COMM_WORLD_SIZE", "4"},
                           {"OMPI_COMM_WORLD_RANK", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                           {"PMIX_NAMESPACE", "838336513"}};
const Variables kSrun = {{"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_PROCID", "0"},
                         {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_JOB_ID", "77"},
                         {"SLURM_STEP_ID", "3"},        {"MASTER_ADDR", "node1"}};
const Variables kTorchrun = {{"WORLD_SIZE", "2"},         {"RANK", "0"},
                             {"LOCAL_WORLD_SIZE", "2"},   {"MASTER_ADDR", "localhost"},
                             {"MASTER_PORT", "29500"},    {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                             {"TORCHELASTIC_RUN_ID", "a"}};

Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

TEST(Launch, NoLauncherIsOneProcess) {
  EXPECT_EQ(read({}).size, 1);
  EXPECT_EQ(read({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}).size, 1);  // a batch script
  EXPECT_EQ(read({{"WORLD_SIZE", "1"}, {"RANK", "0"}}).size, 1);
}

TEST(Launch, Mpirun) {
  const Launch a = read(kMpirun);
  EXPECT_EQ(a.rank, 2);
  EXPECT_EQ(a.size, 4);
  EXPECT_TRUE(a.one_machine);
  EXPECT_EQ(a.address, "127.0.0.1");
  EXPECT_GE(a.port, 20000);
  EXPECT_LT(a.port, 32000);
  EXPECT_FALSE(a.serves_store);
  EXPECT_EQ(a.timeout_s, 600);
  const Launch b = read(with(kMpirun, "OMPI_COMM_WORLD_RANK", "0"));
  EXPECT_EQ(b.port, a.port);
  EXPECT_EQ(b.job, a.job);
  EXPECT_TRUE(b.serves_store);
  EXPECT_NE(read(with(kMpirun, "PMIX_NAMESPACE", "838336514")).port, a.port);
  EXPECT_EQ(read(with(kMpirun, "KEEL_MASTER_PORT", "4242")).port, 4242);
  EXPECT_EQ(read(with(kMpirun, "KEEL_COLLECTIVE_TIMEOUT_S", "5")).timeout_s, 5);
}

TEST(Launch, SrunOverTwoMachines) {
  const Launch a = read(kSrun);
  EXPECT_EQ(a.size, 8);
  EXPECT_FALSE(a.one_machine);
  EXPECT_EQ(a.address, "node1");
  EXPECT_TRUE(a.serves_store);
}

TEST(Launch, TorchrunWinsAndItsAgentServes) {
  Variables both = kSrun;  // srun starts torchrun, which starts us
  for (const auto& [name, value] : kTorchrun) both[name] = value;
  const Launch a = read(both);
  EXPECT_EQ(a.size, 2);
  EXPECT_EQ(a.port, 29500);
  EXPECT_FALSE(a.serves_store);
  EXPECT_TRUE(read(without(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE")).serves_store);
  EXPECT_NE(read(with(kTorchrun, "TORCHELASTIC_RESTART_COUNT", "1")).job, a.job);
}

TEST(Launch, Refusals) {
  EXPECT_TRUE(
      refusal(without(kSrun, "MASTER_ADDR")).starts_with("[MASTER_ADDR] expected rank 0's"));
  EXPECT_TRUE(refusal(with(kMpirun, "OMPI_COMM_WORLD_LOCAL_SIZE", "2"))
                  .starts_with("[MASTER_ADDR] expected"));
  EXPECT_TRUE(refusal(with(kMpirun, "OMPI_COMM_WORLD_RANK", "4"))
                  .starts_with("[OMPI_COMM_WORLD_RANK] expected an integer in [0, 3], got '4'"));
  EXPECT_TRUE(refusal(with(kMpirun, "KEEL_MASTER_PORT", "80x"))
                  .starts_with("[KEEL_MASTER_PORT] expected an integer in [1, 65535], got '80x'"));
  EXPECT_TRUE(refusal(without(kTorchrun, "MASTER_PORT"))
                  .starts_with("[MASTER_ADDR, MASTER_PORT] expected both"));
  EXPECT_TRUE(
      refusal(without(kSrun, "SLURM_PROCID")).starts_with("[SLURM_PROCID] expected a value"));
}

TEST(CpuShare, SharedAndBoundCpus) {
  const std::vector<std::string> same(3, "m 11111111");
  EXPECT_EQ(cpu_share(same, 1), 2);
  const std::vector<std::string> bound = {"m 11110000", "m 00001111"};
  EXPECT_EQ(cpu_share(bound, 0), 4);
  const std::vector<std::string> pairs = {"m 11110000", "m 11110000", "m 00001111", "n 00001111"};
  EXPECT_EQ(cpu_share(pairs, 0), 2);
  EXPECT_EQ(cpu_share(pairs, 2), 4);
  EXPECT_EQ(cpu_share(pairs, 3), 4);  // another machine
  const std::vector<std::string> crowded(4, "m 11");
  EXPECT_EQ(cpu_share(crowded, 3), 1);
  const std::vector<std::string> thirds(3, "m 111111111");
  EXPECT_EQ(cpu_share(thirds, 0), 3);
}

}  // namespace
}  // namespace keel::parallel
