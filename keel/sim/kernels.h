// Times of kernels and collectives on one device: roofline with attainable shares, fixed costs and
// link topology. Pure functions of a shape; every efficiency is a coefficient.
#pragma once

#include <cstdint>
#include <string>

#include "keel/sim/calibration.h"
#include "keel/sim/hardware.h"

namespace keel::sim {

enum class Collective { kAllReduce, kAllGather, kReduceScatter, kAllToAll, kSendRecv, kBroadcast };

// Ranks 0, stride, 2 * stride, ... of a cluster that is filled device by device.
struct RankGroup {
  int64_t size = 1;
  int64_t stride = 1;
};

struct Gemm {
  double m = 0, n = 0, k = 0;
  std::string dtype = "bf16";
  double weight_bytes = 0;  // of one element of the [n, k] operand; 0 = as dtype
};

// Coefficients read (unit): gemm_efficiency (1, share of peak at large m), gemm_half_rows (rows at
// which half of it is reached: m / (m + half)), grouped_gemm_efficiency, attention_efficiency
// (share of peak, forward), attention_backward_efficiency, memory_efficiency (share of HBM rate for
// weights and elementwise), kv_read_efficiency, link_efficiency, launch_s (one kernel without a
// graph), graph_launch_s (one kernel inside a graph), collective_s (fixed cost of one call).
class KernelCosts {
 public:
  KernelCosts(const HardwareSpec& hardware, const Coefficients& coefficients);

  // Without launch: max of the compute and the memory time.
  double gemm_s(const Gemm& g) const;
  // `experts` weight matrices [n, k], `rows` rows over all of them.
  double grouped_gemm_s(double rows, double experts, const Gemm& g) const;
  // kv_bytes read by all rows of this device; flops of the same rows.
  double attention_decode_s(double kv_bytes, double flops) const;
  double attention_prefill_s(double flops, const std::string& dtype, bool backward = false) const;
  double elementwise_s(double bytes) const;  // read and written
  double launch_s(double num_kernels, bool graph) const;

  // bytes: what one rank holds before all-reduce, reduce-scatter and all-to-all; after all-gather
  // and broadcast. Ring or pairwise over the slowest level between the ranks, hierarchical where a
  // group spans nodes with several ranks each; a group of one costs nothing.
  double collective_s(Collective kind, double bytes, const RankGroup& group) const;
  double host_copy_s(double bytes) const;  // device <-> host, one way

  const HardwareSpec& hardware() const { return *hardware_; }

 private:
  const HardwareSpec* hardware_;  // must outlive this
  double gemm_efficiency_, gemm_half_rows_, grouped_efficiency_, attention_efficiency_,
      attention_backward_efficiency_, memory_efficiency_, kv_read_efficiency_, link_efficiency_,
      launch_s_, graph_launch_s_, collective_s_;
};

}  // namespace keel::sim
