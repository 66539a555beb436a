// Training state on disk: checkpoints/step_N/ with master weights and moments (packed, bit for
// bit), a JSON document for everything else, and last a manifest with sizes and checksums. A folder
// without a matching manifest does not exist as far as a resume is concerned, so a kill at any
// instant loses at most the checkpoint that was being written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "keel/base/json.h"
#include "keel/ops/parameter.h"
#include "keel/train/optimizer.h"

namespace keel::train {

// Writes <root>/step_<step>/. state: what the caller needs to continue (cursor, counters, numerics
// id ...). Throws Error(kResource) when the disk is full; the incomplete folder is removed.
void save_checkpoint(const std::string& root, int64_t step, AdamW& optimizer, const Json& state);

// Complete checkpoints under root, ascending by step. Only manifests and sizes are looked at.
std::vector<int64_t> list_checkpoints(const std::string& root);

// Restores weights and moments after checking every checksum; returns the state document.
// The caller publishes the parameters. Throws Error(kInvalid) if the checkpoint does not fit the
// model.
Json load_checkpoint(const std::string& root, int64_t step, AdamW& optimizer);

// Removes what a killed writer left, and all but the newest `keep` checkpoints except those in
// `pinned`.
void prune_checkpoints(const std::string& root, int64_t keep, const std::vector<int64_t>& pinned);

std::string checkpoint_dir(const std::string& root, int64_t step);

}  // namespace keel::train
