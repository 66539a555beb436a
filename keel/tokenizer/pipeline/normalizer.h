// The "normalizer" of tokenizer.json: NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents,
// Prepend, Replace and Sequence.
#pragma once

#include <memory>

#include "keel/tokenizer/pipeline/component.h"
#include "keel/tokenizer/pipeline/text.h"

namespace keel {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(Text& text) const = 0;
};

// nullptr for a null component. Throws Error(kInvalid) for a type that is not listed above.
std::unique_ptr<Normalizer> make_normalizer(const Component& c);

}  // namespace keel
