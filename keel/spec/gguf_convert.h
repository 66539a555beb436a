// GGUF file -> Hugging Face model folder with config.json, generation_config.json, weights,
// tokenizer.json and tokenizer_config.json.
#pragma once

#include <functional>
#include <string>

#include "keel/base/json.h"
#include "keel/io/gguf.h"
#include "keel/spec/model_spec.h"

namespace keel {

// fraction: 0 to 1 of the work; stage: "weights", "tokenizer".
using ConvertProgress = std::function<void(double fraction, const std::string& stage)>;

// Architectures llama, qwen2, qwen3 and qwen3moe; dtype kF32, kBF16 or kF16. The folder must be new
// or empty and appears only when complete. Throws FileError with one line for a wrong file, an
// unknown architecture, weight type or tokenizer.
void convert_gguf(const std::string& gguf_path, const std::string& folder, DType dtype,
                  const ConvertProgress& progress = {});

// The parts, for tests and for reading a GGUF file in place.
ModelSpec spec_of_gguf(const GgufFile& gguf);
OrderedJson tokenizer_json_of_gguf(const GgufFile& gguf);
OrderedJson tokenizer_config_of_gguf(const GgufFile& gguf);

}  // namespace keel
