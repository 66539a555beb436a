// The order in which rows are trained on: a pure function of (seed, epoch), so a run that was cut
// anywhere goes on with exactly the rows that it would have had.
#pragma once

#include <cstdint>
#include <vector>

#include "keel/base/json.h"

namespace keel {

// The permutation of [0, n) for one epoch; the identity if !shuffle.
std::vector<int64_t> epoch_order(int64_t n, uint64_t seed, int64_t epoch, bool shuffle);

struct SamplerOptions {
  uint64_t seed = 0;
  bool shuffle = true;
  // true: an epoch's last rows that do not fill a batch are left out; false: the batch is filled
  // from the next epoch.
  bool drop_last = false;
};

class Sampler {
 public:
  // num_rows > 0; fingerprint: of the data set, kept in the state.
  Sampler(int64_t num_rows, uint64_t fingerprint, const SamplerOptions& options);

  // The next n row indices, 0 < n (n <= num_rows with drop_last). Without drop_last the sequence
  // does not depend on how it is cut into calls.
  std::vector<int64_t> next(int64_t n);

  int64_t epoch() const { return epoch_; }
  int64_t index() const { return index_; }  // rows of this epoch that were given out

  // {"epoch", "index", "seed", "num_rows", "fingerprint"}.
  Json state() const;

  // Goes on where the state was taken. False, and the order starts anew at the state's epoch, if
  // the data set is another one (edited file): old positions mean nothing there. Throws keel::Error
  // if the state is no sampler state.
  [[nodiscard]] bool restore(const Json& state);

 private:
  void start_epoch(int64_t epoch);

  int64_t num_rows_;
  uint64_t fingerprint_;
  SamplerOptions options_;
  int64_t epoch_ = 0, index_ = 0;
  std::vector<int64_t> order_;
};

}  // namespace keel
