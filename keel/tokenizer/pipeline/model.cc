#include "keel/tokenizer/pipeline/model.h"

#include "keel/tokenizer/pipeline/bpe.h"

namespace keel {
namespace {

class WordLevel : public Model {
 public:
  WordLevel(const Component& c, const TokenList& vocabulary) : where_(c.where) {
    vocabulary_.build(vocabulary);
    unk_id_ = vocabulary_.find(c.get<std::string>("unk_token", ""));
  }

  void tokenize(std::string_view word, ModelOutput& out) const override {
    int32_t id = vocabulary_.find(word);
    if (id < 0) id = unk_id_;
    KEEL_REQUIRE(id >= 0, "[{}] expected a word of the vocabulary, got '{}'; name an unk_token",
                 where_, word);
    out.add(id, word.size());
  }

 private:
  std::string where_;
  Vocabulary vocabulary_;
  int32_t unk_id_ = -1;
};

}  // namespace

TokenList read_vocabulary(const Component& model) {
  const Component vocab = model.child("vocab");
  KEEL_REQUIRE(vocab.json.is_object(), "[{}] expected an object from token to id", vocab.where);
  TokenList tokens;
  tokens.reserve(vocab.json.size());
  constexpr int64_t kMaxId = 1 << 28;
  for (const auto& [token, id] : vocab.json.items()) {
    KEEL_REQUIRE(id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() < kMaxId,
                 "[{}] expected a token id, got {} for '{}'", vocab.where, id.dump(), token);
    tokens.emplace_back(token, id.get<int32_t>());
  }
  return tokens;
}

std::unique_ptr<Model> make_model(const Component& c, const TokenList& vocabulary,
                                  bool byte_level) {
  // Files from before the "type" key are BPE if they have merges.
  const std::string type =
      c.get<std::string>("type", c.json.is_object() && c.json.contains("merges") ? "BPE" : "?");
  if (type == "BPE") return std::make_unique<Bpe>(c, vocabulary, byte_level);
  if (type == "WordLevel") return std::make_unique<WordLevel>(c, vocabulary);
  c.unsupported();
}

}  // namespace keel
