// A checkpoint of a run as a Hugging Face folder.
#pragma once

#include <cstdint>
#include <string>

#include "keel/io/dtype.h"

namespace keel::rl {

// run: the run's folder (its config.yaml names the model). step: 0 = the newest. Tokenizer and
// other small files are copied from the model that training started from. Throws Error(kInvalid) if
// there is no such checkpoint. Returns the step.
int64_t export_checkpoint(const std::string& run, int64_t step, const std::string& folder,
                          DType dtype);

}  // namespace keel::rl
