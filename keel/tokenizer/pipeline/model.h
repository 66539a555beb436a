// The "model" of tokenizer.json: from a word to ids.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "keel/tokenizer/pipeline/component.h"

namespace keel {

struct ModelOutput {
  std::vector<int32_t> ids;
  bool want_bytes = false;
  std::vector<uint32_t> num_bytes;  // of input, one per id; only if want_bytes

  void add(int32_t id, size_t bytes) {
    ids.push_back(id);
    if (want_bytes) num_bytes.push_back(static_cast<uint32_t>(bytes));
  }
};

// Immutable; tokenize may be called from any thread.
class Model {
 public:
  virtual ~Model() = default;
  // Appends the tokens of one word (valid UTF-8).
  virtual void tokenize(std::string_view word, ModelOutput& out) const = 0;
};

// Token and id as the file has them.
using TokenList = std::vector<std::pair<std::string, int32_t>>;
TokenList read_vocabulary(const Component& model);

// "BPE" or "WordLevel". byte_level: words are raw bytes and the file uses GPT-2's byte alphabet.
// Throws Error(kInvalid) for other types and for options that change results and are not known.
std::unique_ptr<Model> make_model(const Component& c, const TokenList& vocabulary, bool byte_level);

}  // namespace keel
