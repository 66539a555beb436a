// What a Tokenizer is made of. Private to tokenizer.cc and tokenizer_load.cc.
#pragma once

#include <map>

#include "keel/tokenizer/pipeline/added_tokens.h"
#include "keel/tokenizer/pipeline/decoder.h"
#include "keel/tokenizer/pipeline/model.h"
#include "keel/tokenizer/pipeline/normalizer.h"
#include "keel/tokenizer/pipeline/post_processor.h"
#include "keel/tokenizer/pipeline/pre_tokenizer.h"
#include "keel/tokenizer/pipeline/vocabulary.h"
#include "keel/tokenizer/tokenizer.h"

namespace keel {

struct Tokenizer::Impl {
  struct Token {
    std::string text;   // as in the file
    std::string bytes;  // what it decodes to, if the decoder is ByteLevel alone
    bool present = false;
    bool special = false;
  };
  struct Template {
    std::unique_ptr<ChatTemplate> parsed;
    std::string error;  // if it does not parse
  };

  std::string dir;
  std::unique_ptr<Normalizer> normalizer;       // may be null
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // may be null
  std::unique_ptr<Model> model;
  std::unique_ptr<Decoder> decoder;
  PostProcessor post_processor;
  AddedTokenFinder raw_added;         // searched in the raw text
  AddedTokenFinder normalized_added;  // searched after normalisation
  std::vector<Token> tokens;          // by id
  Vocabulary ids;
  std::map<std::string, std::string> special_names;  // "bos_token" -> "<s>"
  std::map<std::string, Template> templates;         // by name

  void load(const std::string& directory);
  void encode_part(std::string_view part, std::vector<Span>* spans, bool at_start, ModelOutput& out,
                   Encoding* offsets) const;
  Encoding encode(std::string_view text, bool add_special_tokens, bool want_offsets) const;
  std::optional<int32_t> named_id(const std::string& name) const;

 private:
  void load_tokens(const Component& file, TokenList vocabulary);
  void load_special_names(const Json& config);
  void load_templates(const Json& config);
  Token& token(int32_t id);
};

}  // namespace keel
