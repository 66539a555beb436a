// Saves a model in Hugging Face layout, so that transformers loads it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "keel/spec/model_spec.h"
#include "keel/spec/parameters.h"

namespace keel {

struct ExportOptions {
  DType dtype = DType::kBF16;  // kF32, kBF16 or kF16
  ExpertLayout expert_layout = ExpertLayout::kPerExpert;
  bool tied_head = false;  // store lm_head.weight although the model is tied
  uint64_t max_shard_bytes = uint64_t{5} << 30;
  // Folder of the model that this one came from: its tokenizer and other small files are copied,
  // and its config.json too (only the dtype field may differ). "" writes config.json and
  // generation_config.json from the spec.
  std::string copy_from;
};

// Fills `out` (num_elements() values) with parameters(spec)[index]. Called once per parameter in
// order, and again for the embedding if tied_head.
using ReadParam = std::function<void(size_t index, const ParamSpec& param, std::span<float> out)>;

// The whole folder, atomically; `folder` must be new or empty. Throws Error for a full disk and
// such. Holds one parameter at a time.
void export_model(const std::string& folder, const ModelSpec& spec, const ExportOptions& options,
                  const ReadParam& read);

// Only model.safetensors, or shards and their index, into an existing folder.
void write_weights(const std::string& folder, const ModelSpec& spec, const ExportOptions& options,
                   const ReadParam& read);

}  // namespace keel
