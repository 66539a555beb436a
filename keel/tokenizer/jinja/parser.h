// Template source -> statements.
#pragma once

#include <string>

#include "keel/tokenizer/jinja/ast.h"

namespace keel::jinja {

// Throws Error(kInvalid) that begins with `where` and the line: syntax errors, unknown statements,
// filters and tests, nesting that is too deep.
Body parse(const std::string& source, const std::string& where);

}  // namespace keel::jinja
