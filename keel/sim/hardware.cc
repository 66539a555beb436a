#include "keel/sim/hardware.h"

#include <algorithm>

#include "keel/base/error.h"
#include "keel/sim/input/fields.h"

namespace keel::sim {

double HardwareSpec::peak(const std::string& dtype) const {
  if (const auto it = peak_flops.find(dtype); it != peak_flops.end()) return it->second;
  for (const char* other : {"bf16", "fp16", "fp32"}) {
    if (const auto it = peak_flops.find(other); it != peak_flops.end()) return it->second;
  }
  throw_invalid("[hardware.{}] expected a peak rate of {} or bf16; add it to the file", id, dtype);
}

const LinkLevel& HardwareSpec::level_for(int64_t num_ranks, int64_t stride) const {
  KEEL_CHECK(!levels.empty(), "{} has no links", id);
  const int64_t extent = (num_ranks - 1) * std::max<int64_t>(1, stride) + 1;
  for (const auto& level : levels) {
    if (level.span == 0 || extent <= level.span) return level;
  }
  return levels.back();
}

double dtype_bytes(const std::string& dtype) {
  if (dtype == "fp32") return 4;
  if (dtype == "bf16" || dtype == "fp16" || dtype.empty()) return 2;
  if (dtype == "fp8" || dtype == "int8") return 1;
  if (dtype == "int4" || dtype == "fp4") return 0.5;
  throw_invalid("[dtype] expected fp32, bf16, fp16, fp8, int8 or int4, got {}", dtype);
}

namespace {

LinkLevel read_level(MapReader& in) {
  LinkLevel level;
  std::string span;
  in.require("name");
  in.require("bandwidth");
  in.read("name", level.name);
  in.read("bandwidth", level.bytes_per_s, 1);
  in.read("per_peer", level.peer_bytes_per_s, 1);
  in.read("latency_s", level.latency_s);
  std::string text;
  in.read("span", text);
  if (text != "cluster") in.read("span", level.span, 2);
  in.finish(Unknown::kError);
  return level;
}

}  // namespace

HardwareSpec parse_hardware(const std::string& text, const std::string& file_name) {
  const auto file = open_input(text, file_name, "sim-hardware/1");
  MapReader in(file, file->root, "", 1);
  HardwareSpec h;
  for (const char* key : {"id", "vendor", "peak_flops", "memory_bytes", "memory_bandwidth"}) {
    in.require(key);
  }
  in.read("id", h.id);
  in.read("vendor", h.vendor);
  in.read("memory_bytes", h.memory_bytes, 1);
  in.read("memory_bandwidth", h.memory_bytes_per_s, 1);
  in.read("l2_bytes", h.l2_bytes);
  in.read("sms", h.cores);
  auto peaks = in.map("peak_flops");
  for (const auto& [dtype, value] : peaks.numbers()) {
    if (value && *value > 0) {
      h.peak_flops[dtype] = *value;
    } else {
      peaks.fault(dtype, "FLOP/s above 0", "something else");
    }
  }
  auto network = in.map("network");
  for (auto& level : network.maps("levels")) h.levels.push_back(read_level(level));
  auto host = network.map("host");
  host.read("pcie", h.host_link_bytes_per_s);
  host.finish(Unknown::kError);
  network.ignore("grid");
  network.finish(Unknown::kError);
  auto chip = in.map("chip");
  std::vector<int64_t> cores;
  chip.read("cube_cores", cores);
  chip.read("l2_bytes", h.l2_bytes);
  if (!cores.empty()) h.cores = *std::max_element(cores.begin(), cores.end());
  for (const char* key : {"schema", "source", "confidence", "note", "bandwidth_note", "also",
                          "assumed_efficiency", "static_op_cost_us"}) {
    in.ignore(key);
  }
  in.finish(Unknown::kError);
  if (h.levels.empty()) network.fault("levels", "at least one link level", "none");
  file->findings.throw_if_errors();
  return h;
}

HardwareSpec load_hardware(const std::string& path) {
  return parse_hardware(read_input_text(path), path);
}

}  // namespace keel::sim
