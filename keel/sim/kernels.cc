#include "keel/sim/kernels.h"

#include <algorithm>

namespace keel::sim {

KernelCosts::KernelCosts(const HardwareSpec& hardware, const Coefficients& c)
    : hardware_(&hardware),
      gemm_efficiency_(c("gemm_efficiency")),
      gemm_half_rows_(c("gemm_half_rows")),
      grouped_efficiency_(c("grouped_gemm_efficiency")),
      attention_efficiency_(c("attention_efficiency")),
      attention_backward_efficiency_(c("attention_backward_efficiency")),
      memory_efficiency_(c("memory_efficiency")),
      kv_read_efficiency_(c("kv_read_efficiency")),
      link_efficiency_(c("link_efficiency")),
      launch_s_(c("launch_s")),
      graph_launch_s_(c("graph_launch_s")),
      collective_s_(c("collective_s")) {}

double KernelCosts::gemm_s(const Gemm& g) const {
  const double element = dtype_bytes(g.dtype);
  const double weight = g.weight_bytes > 0 ? g.weight_bytes : element;
  const double bytes = g.n * g.k * weight + g.m * (g.n + g.k) * element;
  // m / (m * m / (m + half)): time grows as m + half, so few rows cost almost as much as `half`.
  const double compute =
      2 * g.n * g.k * (g.m + gemm_half_rows_) / (hardware_->peak(g.dtype) * gemm_efficiency_);
  const double memory = bytes / (hardware_->memory_bytes_per_s * memory_efficiency_);
  return g.m > 0 ? std::max(compute, memory) : 0;
}

double KernelCosts::grouped_gemm_s(double rows, double experts, const Gemm& g) const {
  if (rows <= 0 || experts <= 0) return 0;
  const double element = dtype_bytes(g.dtype);
  const double weight = g.weight_bytes > 0 ? g.weight_bytes : element;
  const double bytes = experts * g.n * g.k * weight + rows * (g.n + g.k) * element;
  const double compute = 2 * g.n * g.k * (rows + experts * gemm_half_rows_) /
                         (hardware_->peak(g.dtype) * grouped_efficiency_);
  return std::max(compute, bytes / (hardware_->memory_bytes_per_s * memory_efficiency_));
}

double KernelCosts::attention_decode_s(double kv_bytes, double flops) const {
  return std::max(kv_bytes / (hardware_->memory_bytes_per_s * kv_read_efficiency_),
                  flops / (hardware_->peak("bf16") * attention_efficiency_));
}

double KernelCosts::attention_prefill_s(double flops, const std::string& dtype,
                                        bool backward) const {
  const double share = backward ? attention_backward_efficiency_ : attention_efficiency_;
  return flops / (hardware_->peak(dtype) * share);
}

double KernelCosts::elementwise_s(double bytes) const {
  return bytes / (hardware_->memory_bytes_per_s * memory_efficiency_);
}

double KernelCosts::launch_s(double num_kernels, bool graph) const {
  return num_kernels * (graph ? graph_launch_s_ : launch_s_);
}

double KernelCosts::collective_s(Collective kind, double bytes, const RankGroup& group) const {
  const auto n = static_cast<double>(group.size);
  if (group.size <= 1) return 0;
  const auto& outer = hardware_->level_for(group.size, group.stride);
  const bool sums = kind == Collective::kAllReduce;
  const double factor = sums ? 2 : 1;  // reduce-scatter, then all-gather
  if (kind == Collective::kSendRecv || kind == Collective::kBroadcast) {
    return bytes / (outer.bytes_per_s * link_efficiency_) + outer.latency_s + collective_s_;
  }
  const LinkLevel* inner = nullptr;  // the widest level that holds some of the ranks, not all
  for (const auto& level : hardware_->levels) {
    if (&level == &outer) break;
    if (level.span >= 2 * std::max<int64_t>(1, group.stride)) inner = &level;
  }
  if (inner == nullptr) {
    return factor * ((n - 1) / n * bytes / (outer.bytes_per_s * link_efficiency_) +
                     (n - 1) * outer.latency_s) +
           collective_s_;
  }
  // Hierarchical: a domain shares its fast links, and between domains each rank carries its part.
  const double local = static_cast<double>(inner->span / std::max<int64_t>(1, group.stride));
  const double domains = n / local;
  const bool all_to_all = kind == Collective::kAllToAll;
  const double outer_part = all_to_all ? (n - local) / n : (domains - 1) / domains / local;
  const double inner_part = all_to_all ? (local - 1) / n : (local - 1) / local;
  const double transfer =
      bytes * (std::max(0.0, outer_part) / outer.bytes_per_s + inner_part / inner->bytes_per_s);
  const double latency =
      std::max(0.0, domains - 1) * outer.latency_s + (local - 1) * inner->latency_s;
  return factor * (transfer / link_efficiency_ + latency) + collective_s_;
}

double KernelCosts::host_copy_s(double bytes) const {
  return bytes / (hardware_->host_link_bytes_per_s * link_efficiency_);
}

}  // namespace keel::sim
