#include "keel/tokenizer/pipeline/component.h"

namespace keel {

Pattern::Pattern(const Component& c) {
  if (c.json.is_object() && c.json.contains("Regex")) {
    regex_ = std::make_shared<Regex>(c.get<std::string>("Regex"), c.where);
    return;
  }
  literal_ = c.json.is_string() ? c.json.get<std::string>() : c.get<std::string>("String");
  KEEL_REQUIRE(!literal_.empty(), "[{}] expected a pattern, got an empty string", c.where);
}

}  // namespace keel
