// A group of ranks. Sums are taken in rank order, so results depend on the number of ranks alone,
// never on timing. A group of one returns its input: no caller asks for the size first.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace keel::parallel {

// Calls must be made by all ranks in the same order. One thread at a time. A rank that is lost or
// late makes every call throw Error(kPeer) that names it.
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

  static std::shared_ptr<Group> self();
};

// All processes of the job as the environment describes it (mpirun, srun or torchrun --no-python);
// self() when there is just one.
std::shared_ptr<Group> make_world();

}  // namespace keel::parallel
