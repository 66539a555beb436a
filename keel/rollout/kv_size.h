// How many KV blocks a cache should have.
#pragma once

#include <cstdint>

namespace keel::rollout {

struct KvConfig {
  int32_t kv_blocks = 0;
  int32_t kv_memory_mib = 1024;

  template <class V>
  void visit(V& v) {
    v(kv_blocks, "kv_blocks", "KV blocks of 16 tokens; 0 = what the sequences need and memory has");
    v(kv_memory_mib, "kv_memory_mib", "upper bound of the KV cache in MiB when kv_blocks is 0");
  }
};

// Blocks with the null block. wanted_tokens: KV tokens that all running sequences need at most.
// Automatic size: that, but at most kv_memory_mib and a quarter of available_bytes.
// Throws Error(kInvalid) for fields out of range, Error(kResource) if not even one block fits.
int32_t choose_kv_blocks(const KvConfig& config, int64_t wanted_tokens, int64_t bytes_per_block,
                         int64_t available_bytes);

// Memory that can be had without swapping (MemAvailable of /proc/meminfo); a large number where
// that is not known.
int64_t available_memory_bytes();

}  // namespace keel::rollout
