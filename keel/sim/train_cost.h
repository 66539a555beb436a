// Time of a training, reference or log-prob pass on the slowest pipeline stage: what the kernels,
// collectives and host of one device do with the micro-batches of its data-parallel group.
//
// Coefficients read: train_gemm_efficiency, train_grouped_efficiency (shares of peak; with fp8
// those of kernel:fp8), train_attention_efficiency (kernel:<attention kernel>; forward, backward
// counts 2.5 times the FLOPs), layer_bytes, lora_bytes (elementwise traffic per token and hidden
// element of a forward pass), permute_bytes (per routed row and hidden element), vocab_bytes (loss,
// per token and vocabulary entry), layer_host_s (launching of one layer and pass of a micro-batch),
// ring_step_s, train_link_efficiency, tp_exposed, ep_exposed, dp_exposed (shares of communication
// that no computation hides), routing_imbalance (rows of the busiest expert rank over the mean).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "keel/balance/layout.h"
#include "keel/sim/calibration.h"
#include "keel/sim/hardware.h"
#include "keel/sim/memory.h"
#include "keel/sim/model.h"

namespace keel::sim {

// One micro-batch of a data-parallel group (all its cp ranks together).
struct MicroBatchLoad {
  double tokens = 0;
  double attention_flops = 0;  // forward, whole model
};

struct PassSettings {
  balance::Layout layout;
  int64_t devices_per_node = 8;
  int64_t virtual_stages = 1;
  std::vector<int64_t> pp_layers;  // empty = even
  std::string dtype = "bf16";
  std::string attention;  // kernel's name; "" = the stack's own
  Recompute recompute = Recompute::kNone;
  int64_t recompute_layers = -1;  // of a stage; -1 = all
  int64_t lora_rank = 0;
  bool balanced_routing = false;
  bool ep_overlap = false;
  bool policy_loss = false;      // log-probs and entropies over the vocabulary
  bool sharded_weights = false;  // ZeRO-3 / FSDP: gathered layer by layer
};

struct PassTime {
  std::vector<std::pair<std::string, double>> parts;  // seconds; they sum to total
  double total = 0;
  double device_flops = 0;  // of the model, forward (and backward), without recomputation
};

// The micro-batches of one step, in order; all data-parallel groups are as this one.
PassTime pass_time(const TwinModel& model, const HardwareSpec& hardware,
                   const PassSettings& settings, std::span<const MicroBatchLoad> micro_batches,
                   const Coefficients& coefficients, bool backward);

// Optimizer step of one device: reading and writing its states (on the host where swapped: over the
// host link), and the reduction of gradients that backward does not hide. Coefficients:
// optimizer_bytes (traffic per parameter), host_link_efficiency, dp_exposed, train_link_efficiency.
PassTime optimizer_time(const TwinModel& model, const HardwareSpec& hardware,
                        const PassSettings& settings, bool on_host,
                        const Coefficients& coefficients);

// Adds the parts of `b` to `a`, by name, `times` over.
void add_parts(PassTime& a, const PassTime& b, double times = 1);

}  // namespace keel::sim
