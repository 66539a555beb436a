// Added tokens (special or not): they are cut out of the text before the model sees the rest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "keel/tokenizer/pipeline/component.h"
#include "keel/tokenizer/pipeline/known_split.h"

namespace keel {

struct AddedToken {
  int32_t id = -1;
  std::string content;
  bool special = false;
  bool normalized = false;   // searched in the normalised text
  bool single_word = false;  // only between non-word code points
  bool lstrip = false;       // swallows the white space before it
  bool rstrip = false;       // and after it
};

AddedToken read_added_token(const Component& c);

// Leftmost-longest search for a set of added tokens.
class AddedTokenFinder {
 public:
  struct Part {
    Range range;
    int32_t id;  // -1 for text between added tokens
  };

  void add(const AddedToken& token, const std::string& content);
  bool empty() const { return tokens_.empty(); }

  // Cuts `text` (valid UTF-8) into text and tokens, in order; parts are never empty.
  std::vector<Part> split(std::string_view text) const;

 private:
  struct Node {
    int32_t token = -1;                               // index into tokens_
    std::vector<std::pair<unsigned char, int>> next;  // few children: a list is quick enough
  };
  struct Entry {
    AddedToken token;
    size_t num_bytes;
  };

  // Index of the longest token at `at`, or -1.
  int longest(std::string_view text, size_t at) const;

  std::vector<Entry> tokens_;
  std::vector<Node> nodes_ = std::vector<Node>(1);
  bool first_[256] = {};
};

}  // namespace keel
