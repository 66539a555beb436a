// Places replicas of experts on GPUs so that the most loaded GPU gets little more than the mean.
// The tokens of an expert are split evenly over its replicas. Pure: same input, same plan; ties go
// to the lower index.
//
// Three uses: a placement from scratch (place_experts), an online one that follows drifting loads
// with few moves (RouterForecast + follow_load), and an exact one for training, where a rollout has
// recorded the routing of the very batch (place_experts on its counts, moving only what it must).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace keel::balance {

struct ExpertLayout {
  int32_t num_experts = 0;
  int32_t num_replicas = 0;  // >= num_experts, a multiple of num_gpus
  int32_t num_gpus = 1;

  int32_t slots_per_gpu() const { return num_replicas / num_gpus; }
};

struct ExpertPlacement {
  std::vector<int32_t> expert_of;  // [num_replicas]; GPU g holds slots g * q .. (g + 1) * q - 1
  std::vector<int32_t> count;      // [num_experts] replicas, >= 1
};

struct PlacementOptions {
  double tolerance = 2e-4;  // good enough: largest GPU load <= bound * (1 + tolerance)
  int64_t effort = 120000;  // limit of the search, in exchanges looked at (about 15 ns each)
};

// loads[e]: tokens routed to expert e, >= 0. Replicas go one by one to the expert with the largest
// share, replicas longest first to the lightest GPU; then exchanges between the most loaded GPU and
// the others, replicas traded between experts, and random changes where that helps.
// Throws Error(kInvalid) if a load is negative or not finite, or the layout does not divide.
ExpertPlacement place_experts(std::span<const double> loads, const ExpertLayout& layout,
                              const PlacementOptions& options = {});

// The same, from an existing placement: at most `max_moved` replicas change their GPU (each costs
// the transfer of one expert's weights), those first that lower the largest load most. Stops
// early within options.tolerance.
ExpertPlacement follow_load(std::span<const double> loads, const ExpertLayout& layout,
                            const ExpertPlacement& current, int32_t max_moved,
                            const PlacementOptions& options = {});

// Largest GPU load over the mean; 1 if there is no load at all.
double imbalance(std::span<const double> loads, const ExpertLayout& layout,
                 const ExpertPlacement& placement);

// Lower bound of imbalance() for any placement: the best possible largest replica, at least 1.
double imbalance_bound(std::span<const double> loads, const ExpertLayout& layout);

// Replicas that GPUs must fetch to go from one placement to the other; slots within a GPU are free.
int32_t count_moved(const ExpertLayout& layout, const ExpertPlacement& from,
                    const ExpertPlacement& to);

// Empty if every slot holds an expert, every expert has a replica and counts are right; otherwise
// what is wrong.
std::string validate(const ExpertLayout& layout, const ExpertPlacement& placement);

// Forecast of the next batch's loads. Log-popularity is taken as a slow level plus a deviation that
// fades; both follow what is observed.
class RouterForecast {
 public:
  explicit RouterForecast(int32_t num_experts);
  // loads: [num_experts] tokens of one batch, >= 0.
  void observe(std::span<const double> loads);
  // [num_experts] shares of the next batch's tokens, sum 1 (equal before the first observation).
  std::vector<double> next() const;

 private:
  std::vector<double> level_, deviation_;
  int64_t batches_ = 0;
};

}  // namespace keel::balance
