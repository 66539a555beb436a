// Context-parallel schedulers of Megatron-LM and of Ascend's training recipe (version 1),
// reproduced exactly: baselines of context_parallel.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace keel::balance::published {

// Megatron-LM's BalancedCPScheduler: groups are powers of two, sequences longest first; a round
// ends near balance, ranks left empty are given to groups by doubling. Returns [round][rank]
// sequence indices in order; all ranks wait between rounds.
// Throws Error(kInvalid) where the original fails (a sequence needs more ranks than there are).
std::vector<std::vector<std::vector<int32_t>>> megatron_balanced_cp(
    std::span<const int64_t> lengths, int32_t num_ranks, int64_t max_tokens_per_rank);

// The recipe's groups for the sequences of one micro-batch on cp ranks: ranks of each sequence, or
// nothing where it falls back to plain context parallelism. Throws Error(kInvalid) where it fails.
std::optional<std::vector<std::vector<int32_t>>> recipe_groups(std::span<const int64_t> lengths,
                                                               int32_t cp);

// The recipe's micro-batches: longest first into the first of num_buckets with room, else into the
// emptiest.
std::vector<std::vector<int32_t>> recipe_pack(std::span<const int64_t> lengths, int64_t cap,
                                              int32_t num_buckets);

}  // namespace keel::balance::published
