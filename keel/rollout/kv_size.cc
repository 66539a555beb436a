#include "keel/rollout/kv_size.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "keel/base/error.h"
#include "keel/sched/block_pool.h"

namespace keel::rollout {

int32_t choose_kv_blocks(const KvConfig& config, int64_t wanted_tokens, int64_t bytes_per_block,
                         int64_t available_bytes) {
  KEEL_REQUIRE(config.kv_blocks == 0 || config.kv_blocks >= 2,
               "[rollout.kv_blocks] expected 0 (automatic) or >= 2, got {}", config.kv_blocks);
  KEEL_REQUIRE(config.kv_memory_mib >= 1, "[rollout.kv_memory_mib] expected >= 1, got {}",
               config.kv_memory_mib);
  if (config.kv_blocks > 0) return config.kv_blocks;
  const int64_t wanted = (wanted_tokens + sched::kBlockTokens - 1) / sched::kBlockTokens + 1;
  const int64_t bytes = std::min(int64_t{config.kv_memory_mib} << 20, available_bytes / 4);
  const int64_t fitting = bytes / bytes_per_block;
  if (fitting < 2) {
    throw Error(ErrorKind::kResource,
                fmt::format("[rollout.kv_memory_mib] expected room for KV blocks of {} bytes, got "
                            "{} bytes; try a larger bound or a smaller model",
                            bytes_per_block, bytes));
  }
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max() / sched::kBlockTokens;
  return static_cast<int32_t>(std::clamp<int64_t>(wanted, 2, std::min(fitting, kMost)));
}

int64_t available_memory_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("MemAvailable:")) return std::stoll(line.substr(13)) * 1024;
  }
  return int64_t{1} << 50;
}

}  // namespace keel::rollout
