// The safetensors files of a model folder: found, opened and checked as containers.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "keel/io/safetensors.h"
#include "keel/spec/finding.h"

namespace keel {

struct StoredTensor {
  size_t file = 0;  // index into WeightFiles::files
  const SafetensorsTensor* tensor = nullptr;
};

struct WeightFiles {
  std::vector<std::unique_ptr<SafetensorsFile>> files;
  std::map<std::string, StoredTensor> tensors;
  bool complete = false;  // every file could be opened, so an absent tensor really is absent
};

// model.safetensors.index.json and its shards, else model.safetensors, else all *.safetensors.
// Kinds: missing_file, missing_shard, path_traversal, bad_index, index_mismatch, conflict,
// duplicate_tensor, pickle_only, and the faults of SafetensorsFile.
WeightFiles open_weight_files(const std::string& folder, std::vector<Finding>& findings);

}  // namespace keel
