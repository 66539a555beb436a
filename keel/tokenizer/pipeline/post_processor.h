// The "post_processor" of tokenizer.json for single sequences: TemplateProcessing, ByteLevel,
// RobertaProcessing, BertProcessing and Sequence.
#pragma once

#include <cstdint>
#include <vector>

#include "keel/tokenizer/pipeline/component.h"

namespace keel {

// Ids put around a sequence when special tokens are asked for.
struct PostProcessor {
  std::vector<int32_t> before;
  std::vector<int32_t> after;
};

// Throws Error(kInvalid) for a type that is not listed above.
PostProcessor make_post_processor(const Component& c);

}  // namespace keel
