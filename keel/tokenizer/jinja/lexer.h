// Template source -> tokens, with Jinja's white space control: trim_blocks and lstrip_blocks are
// on, one newline at the very end is dropped, `-` and `+` next to a tag override.
#pragma once

#include <string>
#include <vector>

namespace keel::jinja {

enum class TokenKind {
  kText,        // outside of tags; `text` is what will be written
  kBlockBegin,  // {%
  kBlockEnd,
  kVariableBegin,  // {{
  kVariableEnd,
  kName,
  kInteger,
  kFloat,
  kString,    // `text` is the value
  kOperator,  // `text` is the sign
  kEnd,
};

struct Token {
  TokenKind kind;
  std::string text;
  int line;
};

// Throws Error(kInvalid) that begins with `where` and the line. Ends with kEnd.
std::vector<Token> tokenize(const std::string& source, const std::string& where);

}  // namespace keel::jinja
