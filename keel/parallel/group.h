// A group of ranks. Sums are taken in rank order, so results depend on the number of ranks alone,
// never on timing. A group of one returns its input: no caller asks for the size first.
#pragma once

#include <memory>
#include <span>
#include <vector>

namespace keel::parallel {

// Calls must be made by all ranks in the same order and, unless said otherwise, with the same
// lengths. One thread at a time. A rank that is lost or late makes the call and every later one
// throw Error(kPeer) that names the rank and what it was awaited for.
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // values = ((v_0 + v_1) + v_2) + ... element by element, the same bits on every rank.
  virtual void all_reduce_sum(std::span<float> values) = 0;
  virtual void all_reduce_sum(std::span<double> values) = 0;
  // The ranks' values (any lengths), in rank order.
  virtual std::vector<std::vector<double>> all_gather(std::span<const double> values) = 0;
  virtual void barrier() = 0;

  // Compute threads for this rank: the CPUs it may run on, each divided by the ranks of the same
  // machine that may run on it too; at least 1.
  virtual int suggested_threads() const = 0;

  static std::shared_ptr<Group> self();
};

// All processes of the job as the environment describes it (mpirun, srun or torchrun --no-python);
// self() when there is just one. Throws Error(kInvalid) for an environment that cannot work and
// Error(kPeer) when a rank does not arrive.
//   MASTER_ADDR, MASTER_PORT   where rank 0 is met; needed on several machines and with torchrun
//   KEEL_MASTER_PORT           the port instead of one derived from the job's id
//   KEEL_COLLECTIVE_TIMEOUT_S  seconds that a rank may be late by; 600
std::shared_ptr<Group> make_world();

}  // namespace keel::parallel
