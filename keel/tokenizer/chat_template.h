// Chat templates: the part of Jinja that Hugging Face models use, with the switches and extensions
// of transformers (trim_blocks, lstrip_blocks, break/continue, generation blocks, tojson,
// raise_exception, strftime_now). What it lacks (inheritance, include, call blocks, user-defined
// extensions) is an error when the template is parsed, not silence. `safe` changes nothing, as
// there is no escaping.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "keel/base/json.h"

namespace keel {

// What one rendering may use up before it ends in an error. A long conversation takes some 100
// steps a message and ten times its own bytes.
struct TemplateLimits {
  int64_t max_steps = 20'000'000;          // expressions, statements and visited items
  int64_t max_bytes = int64_t{512} << 20;  // of all text and lists made on the way
};

// Immutable; render may be called from any thread.
class ChatTemplate {
 public:
  // Throws Error(kInvalid) with the line of a syntax error; `where` names the template.
  explicit ChatTemplate(const std::string& source, std::string where = "chat template",
                        TemplateLimits limits = {});
  ~ChatTemplate();

  // Variables that the template sees: messages, tools (null or a list), documents (none),
  // add_generation_prompt, the special tokens (bos_token, ...) and kwargs (null or an object; they
  // win).
  // Throws Error(kInvalid) where Jinja would raise, for raise_exception, and when the template
  // recurses too deeply, runs too long or writes too much.
  std::string render(const OrderedJson& messages, const OrderedJson& tools,
                     bool add_generation_prompt, const OrderedJson& kwargs,
                     const std::map<std::string, std::string>& special_tokens) const;

  // Renders with exactly these variables (an object).
  std::string render(const OrderedJson& variables) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace keel
