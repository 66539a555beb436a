// Where a YAML syntax error really is: scanners notice most of them some lines too late.
#pragma once

#include <string>
#include <string_view>

namespace keel {

// The dotted keys that enclose line `line` (1-based) judging by indentation, e.g.
// "actor.optim.lr"; block style only, good enough for messages.
std::string yaml_path_at_line(std::string_view text, int line);

struct YamlFault {
  int line;
  std::string got;   // what is there
  std::string hint;  // how to fix it
};

// `message` and `line`: what the scanner said; `flow_line`: line of the innermost bracket that is
// still open, 0 = none.
YamlFault explain_yaml_error(std::string_view text, const std::string& message, int line,
                             int flow_line);

// True if the quoted scalar that starts at text[at] is closed.
bool yaml_quote_is_closed(std::string_view text, size_t at);

}  // namespace keel
