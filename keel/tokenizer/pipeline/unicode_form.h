// The four Unicode normalisation forms, with the origin of every byte kept.
#pragma once

#include "keel/tokenizer/pipeline/text.h"

namespace keel {

struct UnicodeForm {
  bool compatible;  // NFKC, NFKD
  bool composed;    // NFC, NFKC
};

void to_unicode_form(Text& text, UnicodeForm form);

}  // namespace keel
