// Does the tokenizer of a model folder fit the model? Looks at tokenizer.json,
// tokenizer_config.json and the chat template as data; encoding is the tokenizer module's work.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "keel/spec/finding.h"
#include "keel/spec/model_spec.h"

namespace keel {

// Kinds: missing_file, bad_tokenizer, tokenizer_mismatch, bad_template.
void check_tokenizer(const std::string& folder, const ModelSpec& spec,
                     std::vector<Finding>& findings);

// "" if every Jinja block, comment and expression is closed; otherwise what is wrong and where.
std::string check_template_blocks(std::string_view text);

}  // namespace keel
