// Real processes: the test program starts itself again, once a rank, with --rank-body=<name>.
#include "keel/parallel/group.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "keel/base/cpu.h"
#include "keel/base/env.h"
#include "keel/base/error.h"
#include "keel/parallel/test_ranks.h"

namespace keel::parallel {
namespace {

using namespace std::chrono_literals;

// Fails the body, hence the rank's exit code.
#define RANK_CHECK(cond) KEEL_CHECK(cond, "in a rank of the test")

// Magnitudes from 2^-20 to 2^20 and both signs: sums depend on their order.
template <class T>
T value_of(int rank, int64_t i) {
  const uint64_t h = (static_cast<uint64_t>(i) * 31 + rank + 1) * 0x9e3779b97f4a7c15ull;
  const T magnitude = std::ldexp(1 + static_cast<T>(h >> 32) / T(1ull << 32), int(h % 41) - 20);
  return (h >> 20) % 2 ? magnitude : -magnitude;
}

template <class T>
std::vector<T> values_of(int rank, int64_t n) {
  std::vector<T> values(n);
  for (int64_t i = 0; i < n; ++i) values[i] = value_of<T>(rank, i);
  return values;
}

template <class T>
void check_sum(Group& group, int64_t n) {
  std::vector<T> values = values_of<T>(group.rank(), n);
  group.all_reduce_sum(values);
  for (int64_t i = 0; i < n; ++i) {
    T expected = value_of<T>(0, i);
    for (int r = 1; r < group.size(); ++r) expected += value_of<T>(r, i);
    RANK_CHECK(std::memcmp(&expected, &values[i], sizeof(T)) == 0);
  }
}

void collectives(bool large) {
  const auto group = make_world();
  RANK_CHECK(group->size() == (env("OMPI_COMM_WORLD_SIZE") ? 2 : std::stoi(*env("WORLD_SIZE"))));
  if (!env("OMPI_COMM_WORLD_SIZE")) {  // mpirun may bind ranks to CPUs
    RANK_CHECK(group->suggested_threads() == std::max(1, num_allowed_cpus() / group->size()));
  }
  // None, small ones (one round), then one chunk.
  for (const int64_t n : {0, 1, 1000, 16384, 16385, 100000}) check_sum<float>(*group, n);
  for (const int64_t n : {0, 3, 8193, 100000}) check_sum<double>(*group, n);
  if (large) {  // several chunks
    check_sum<float>(*group, (4 << 20) + 1);
    check_sum<double>(*group, (2 << 20) + 12345);
  }
  for (const int64_t step : {0, 1, 50000}) {
    const auto all = group->all_gather(values_of<double>(group->rank(), group->rank() * step));
    RANK_CHECK(std::ssize(all) == group->size());
    for (int r = 0; r < group->size(); ++r) RANK_CHECK(all[r] == values_of<double>(r, r * step));
  }
  group->barrier();
}

std::string peer_error(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kPeer) return error.what();
  }
  return "no peer error";
}

void expect_prefix(const std::string& text, const std::string& prefix) {
  KEEL_CHECK(text.starts_with(prefix), "'{}' does not start with '{}'", text, prefix);
}

// Rank 1 is killed; the others notice long before the deadline and say which it was.
void lost() {
  const auto group = make_world();
  group->barrier();
  if (group->rank() == 1) raise(SIGKILL);
  std::vector<float> values(10);
  const auto started = std::chrono::steady_clock::now();
  const std::string text = peer_error([&] { group->all_reduce_sum(values); });
  expect_prefix(text, "rank 1 was lost during all_reduce_sum of 10 float: ");
  RANK_CHECK(peer_error([&] { group->barrier(); }) == text);
  RANK_CHECK(std::chrono::steady_clock::now() - started < 8s);
}

// Rank 1 comes too late; the others do not blame each other.
void late() {
  const auto group = make_world();
  group->barrier();
  if (group->rank() == 1) return std::this_thread::sleep_for(3s);
  const std::string text = peer_error([&] { group->barrier(); });
  RANK_CHECK(text == "rank 1 did not arrive at barrier within 1 s");
}

void absent() {
  expect_prefix(peer_error([] { make_world(); }), "rank 1 did not arrive at the start within 1 s");
}

int run_body(const std::string& name) {
  try {
    if (name == "collectives")
      collectives(true);
    else if (name == "small_collectives")
      collectives(false);
    else if (name == "lost")
      lost();
    else if (name == "late")
      late();
    else if (name == "absent")
      absent();
    else
      KEEL_CHECK(false, "no body '{}'", name);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return 1;
  }
  return 0;
}

// Runs ranks [0, started) of a job of `size`; returns their wait statuses.
std::vector<int> run_ranks(const std::string& body, int size, int started, int port, int timeout_s,
                           const std::vector<std::string>& more = {}) {
  auto variables = more;
  variables.push_back(fmt::format("KEEL_COLLECTIVE_TIMEOUT_S={}", timeout_s));
  return test::run_ranks({"--rank-body=" + body}, size, started, port, variables);
}

TEST(Group, SelfReturnsItsInput) {
  const auto self = Group::self();
  std::vector<double> values = {1, 2};
  self->all_reduce_sum(std::span(values));
  EXPECT_EQ(values, (std::vector<double>{1, 2}));
  EXPECT_EQ(self->all_gather(values), std::vector<std::vector<double>>{values});
  EXPECT_EQ(self->suggested_threads(), num_allowed_cpus());
}

TEST(Group, TwoProcesses) {
  EXPECT_EQ(run_ranks("small_collectives", 2, 2, test::free_port(), 60), (std::vector{0, 0}));
}

TEST(Group, ThreeProcesses) {
  EXPECT_EQ(run_ranks("collectives", 3, 3, test::free_port(), 60), (std::vector{0, 0, 0}));
}

TEST(Group, LostRankIsNamedByAll) {
  EXPECT_EQ(run_ranks("lost", 3, 3, test::free_port(), 60), (std::vector{0, SIGKILL, 0}));
}

TEST(Group, LateRankIsNamedByAll) {
  EXPECT_EQ(run_ranks("late", 3, 3, test::free_port(), 1), (std::vector{0, 0, 0}));
}

TEST(Group, AbsentRankIsNamed) {
  EXPECT_EQ(run_ranks("absent", 2, 1, test::free_port(), 1), (std::vector{0}));
}

TEST(Group, StoreOfTorchrunsAgent) {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  const c10d::TCPStore agent("127.0.0.1", options);
  EXPECT_EQ(run_ranks("small_collectives", 2, 2, agent.getPort(), 60,
                      {"TORCHELASTIC_USE_AGENT_STORE=True", "LOCAL_WORLD_SIZE=2"}),
            (std::vector{0, 0}));
}

TEST(Group, Mpirun) {
  std::vector<std::string> environment = test::clean_environment();
  environment.insert(environment.end(),
                     {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"});
  const pid_t pid = test::spawn({"mpirun", "--oversubscribe", "-np", "2", test::this_program(),
                                 "--rank-body=small_collectives"},
                                environment);
  if (pid < 0) GTEST_SKIP() << "no mpirun on this machine";
  int status = -1;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace keel::parallel

int main(int argc, char** argv) {
  const std::string flag = "--rank-body=";
  if (argc == 2 && std::string(argv[1]).starts_with(flag)) {
    return keel::parallel::run_body(argv[1] + flag.size());
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
