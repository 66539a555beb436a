// Text <-> token ids, as the tokenizer.json of a Hugging Face directory says.
//
// Supported: BPE (byte level, or code points with byte fallback) and WordLevel, with the parts that
// Qwen2/3, Llama-2/3, GPT-2, SmolLM and Mistral tokenizers are made of; the headers in pipeline/
// list them. Anything else is an Error(kInvalid) that names component and file: a tokenizer either
// gives the ids that `tokenizers` gives or does not load.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/base/json.h"
#include "keel/tokenizer/chat_template.h"

namespace keel {

struct Encoding {
  std::vector<int32_t> ids;
  // Code points [begin, end) of the input behind each id; (0, 0) for ids that add_special_tokens
  // put there. A token that holds part of a code point's bytes counts all of it. Not trimmed: the
  // trim_offsets switches of the file are ignored.
  std::vector<std::pair<uint32_t, uint32_t>> offsets;
};

struct ChatOptions {
  OrderedJson tools;  // null or a list of function descriptions
  bool add_generation_prompt = false;
  OrderedJson kwargs;  // null or an object of further template variables
};

// Immutable: every member function may be called from any thread.
class Tokenizer {
 public:
  // Reads tokenizer.json and, where present, tokenizer_config.json, special_tokens_map.json and
  // chat_template.jinja of `dir`. Throws Error(kInvalid) for missing, broken or unsupported files.
  static std::shared_ptr<const Tokenizer> load(const std::string& dir);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Malformed UTF-8 in `text` counts as U+FFFD. Added tokens in the text (such as "<|im_end|>")
  // become their ids. add_special_tokens also applies the file's post-processor (BOS and so on).
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const;
  Encoding encode_with_offsets(std::string_view text, bool add_special_tokens) const;

  // Ids that are not in the vocabulary are left out. The result is valid UTF-8: broken sequences
  // become U+FFFD. "clean_up_tokenization_spaces" is not applied, so that text survives a round.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  // Highest id + 1 (added tokens included; a model may have more rows, as padding).
  int32_t vocab_size() const;
  std::optional<int32_t> id_of(std::string_view token) const;
  // As in the file ("Ġthe"); empty if `id` is not in the vocabulary.
  const std::string& token_of(int32_t id) const;
  bool is_special(int32_t id) const;

  // From tokenizer_config.json or special_tokens_map.json; nullopt if not named or not a token.
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  std::optional<int32_t> pad_id() const;

  bool has_chat_template() const;
  // The template for conversations (with_tools: the one named "tool_use", if the file has one).
  // Throws Error(kInvalid) if there is none or it does not parse.
  const ChatTemplate& chat_template(bool with_tools = false) const;
  // Encode the result with add_special_tokens = false: templates write their own BOS.
  std::string apply_chat_template(const OrderedJson& messages, const ChatOptions& options) const;

 private:
  friend class IncrementalDecoder;
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

// Decodes one sequence as it grows. The pieces returned by push and finish, joined, are exactly
// Tokenizer::decode of all ids; no piece ends within a code point. (With byte-fallback vocabularies
// a run of byte tokens is held until it ends, because its last byte decides how its first is read.)
// One thread at a time.
class IncrementalDecoder {
 public:
  IncrementalDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens);
  ~IncrementalDecoder();
  IncrementalDecoder(IncrementalDecoder&&) noexcept;
  IncrementalDecoder& operator=(IncrementalDecoder&&) noexcept;

  std::string push(int32_t id);
  std::string finish();  // what was held back; call once, last

 private:
  friend class Tokenizer;
  struct State;
  std::unique_ptr<State> state_;
};

// One row of `keel tokenize --cases`: {"text"} -> {"ids"} (no special tokens added unless the row
// says "add_special_tokens": true); {"messages", "tools", "kwargs"} -> {"text", "ids"}.
// Throws Error(kInvalid) for other rows.
OrderedJson run_tokenize_case(const Tokenizer& tokenizer, const OrderedJson& row);

}  // namespace keel
