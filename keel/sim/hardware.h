// What a device and its links can do at most, as data sheets state it. Attainable shares of these
// peaks are coefficients (calibration.h), never part of a hardware file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace keel::sim {

// Links that join `span` consecutive devices; the innermost level that spans a group carries it.
struct LinkLevel {
  std::string name;             // "nvlink", "sio_die_to_die", "roce"
  int64_t span = 0;             // devices; 0 = the whole cluster
  double bytes_per_s = 0;       // one way, of one device, over all its links of this level
  double peer_bytes_per_s = 0;  // one way to one peer (full mesh); 0 = the whole rate to any peer
  double latency_s = 0;
};

struct HardwareSpec {
  std::string id;                            // "h100", "ascend-a3-die"
  std::string vendor;                        // "nvidia", "huawei", "cpu"
  std::map<std::string, double> peak_flops;  // by dtype: "bf16", "fp16", "fp8", "int8", ...
  double memory_bytes = 0;
  double memory_bytes_per_s = 0;
  double l2_bytes = 0;
  int64_t cores = 0;                 // SMs or cube cores
  std::vector<LinkLevel> levels;     // inner to outer
  double host_link_bytes_per_s = 0;  // PCIe, one way; 0 = unknown

  // FLOP/s of a dtype; fp8 and int8 fall back to the 16-bit rate where the device has no such unit.
  double peak(const std::string& dtype) const;
  // The level that joins ranks 0, stride, 2 * stride, ... (num_ranks of them); levels must exist.
  const LinkLevel& level_for(int64_t num_ranks, int64_t stride = 1) const;
};

// Bytes of one element: "fp32" 4, "bf16" and "fp16" 2, "fp8" and "int8" 1, "int4" 0.5. Throws
// Error(kInvalid) for another name.
double dtype_bytes(const std::string& dtype);

// Reads `schema: sim-hardware/1`. Throws Error(kInvalid) with file:line and field.
HardwareSpec load_hardware(const std::string& path);
HardwareSpec parse_hardware(const std::string& text, const std::string& file_name);

}  // namespace keel::sim
