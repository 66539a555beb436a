// A model folder with random weights, for training from scratch.
#pragma once

#include <cstdint>
#include <string>

#include "keel/base/json.h"
#include "keel/spec/model_spec.h"

namespace keel {

// config: the fields of a Hugging Face config.json (see model_spec.h). Matrices are normal with
// standard deviation initializer_range (default 0.02), norms 1, biases 0; each parameter depends on
// the seed and its name only. If tokenizer_from is not "", the tokenizer files of that folder are
// copied. The folder must be new or empty. Throws FileError for a wrong config.
void init_model(const std::string& folder, const Json& config, uint64_t seed,
                const std::string& tokenizer_from = "");

}  // namespace keel
