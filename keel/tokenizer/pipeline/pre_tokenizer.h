// The "pre_tokenizer" of tokenizer.json: Split, ByteLevel, Digits, Metaspace, Whitespace,
// WhitespaceSplit, Punctuation and Sequence.
#pragma once

#include <memory>
#include <vector>

#include "keel/tokenizer/pipeline/component.h"
#include "keel/tokenizer/pipeline/known_split.h"
#include "keel/tokenizer/pipeline/text.h"

namespace keel {

// A text cut into the words that the model sees. Bytes outside every range were removed.
struct Pieces {
  Text text;
  std::vector<Range> ranges;
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces& pieces) const = 0;
};

// nullptr for a null component. `byte_level` is set if ByteLevel is part of it: the vocabulary is
// then written in GPT-2's byte alphabet. (Bytes stay bytes here; the alphabet is undone on
// loading.) Throws Error(kInvalid) for a type that is not listed above.
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const Component& c, bool& byte_level);

}  // namespace keel
