// Equality with tokenizers and transformers on every committed case.
#include <gtest/gtest.h>

#include "keel/tokenizer/test_util.h"
#include "keel/tokenizer/tokenizer.h"

namespace keel {
namespace {

using Ids = std::vector<int32_t>;

class Golden : public testing::TestWithParam<const char*> {
 protected:
  std::shared_ptr<const Tokenizer> load() const {
    return Tokenizer::load(test::golden(std::string("tokenizers/") + GetParam()));
  }
  std::vector<OrderedJson> rows(const std::string& suffix) const {
    return test::read_jsonl(test::golden("tokenizer_cases/" + std::string(GetParam()) + suffix));
  }
};

TEST_P(Golden, Encode) {
  const auto t = load();
  for (const auto& row : rows(".jsonl")) {
    const auto text = row["text"].get<std::string>();
    const auto ids = row["ids"].get<Ids>();
    EXPECT_EQ(t->encode(text, false), ids) << row["text"];
    const Encoding e = t->encode_with_offsets(text, false);
    EXPECT_EQ(e.ids, ids);
    EXPECT_EQ(OrderedJson(e.offsets).dump(), row["offsets"].dump()) << row["text"];
    const auto with = row.contains("ids_with_special") ? row["ids_with_special"].get<Ids>() : ids;
    EXPECT_EQ(t->encode(text, true), with);
    EXPECT_EQ(t->encode_with_offsets(text, true).ids, with);
    EXPECT_EQ(t->encode_with_offsets(text, true).offsets.size(), with.size());
    EXPECT_EQ(t->decode(ids, false), row["decoded"].get<std::string>());
    EXPECT_EQ(t->decode(ids, true), row["decoded_skip_special"].get<std::string>());
  }
}

TEST_P(Golden, Decode) {
  const auto t = load();
  for (const auto& row : rows("_decode.jsonl")) {
    const auto ids = row["ids"].get<Ids>();
    EXPECT_EQ(t->decode(ids, false), row["decoded"].get<std::string>());
    EXPECT_EQ(t->decode(ids, true), row["decoded_skip_special"].get<std::string>());
    for (size_t n = 0; n < ids.size(); ++n) {
      EXPECT_EQ(t->decode(std::span(ids).first(n + 1), false),
                row["prefix_decoded"][n].get<std::string>());
    }
    for (const bool skip : {false, true}) {
      IncrementalDecoder decoder(t, skip);
      std::string all;
      for (const int32_t id : ids) {
        const std::string piece = decoder.push(id);
        EXPECT_TRUE(unicode::is_valid(piece));
        all += piece;
      }
      EXPECT_EQ(all + decoder.finish(), t->decode(ids, skip));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Golden, testing::Values("qwen", "llama3", "llama2"),
                         [](const auto& info) { return std::string(info.param); });

class GoldenChat : public testing::TestWithParam<const char*> {};

TEST_P(GoldenChat, TextAndIds) {
  const std::string name = GetParam();
  const auto t = Tokenizer::load(test::golden("tokenizers/" + name));
  for (const auto& row : test::read_jsonl(test::golden("chat_cases/" + name + ".jsonl"))) {
    const OrderedJson got = run_tokenize_case(*t, row);
    EXPECT_EQ(got["text"].get<std::string>(), row["text"].get<std::string>());
    EXPECT_EQ(got["ids"].get<Ids>(), row["ids"].get<Ids>());
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenChat, testing::Values("qwen", "llama3"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Tokenizer, SpecialTokens) {
  const auto qwen = Tokenizer::load(test::golden("tokenizers/qwen"));
  EXPECT_EQ(qwen->bos_id(), std::nullopt);
  EXPECT_EQ(qwen->eos_id(), qwen->id_of("<|im_end|>"));
  EXPECT_EQ(qwen->pad_id(), qwen->id_of("<|endoftext|>"));
  EXPECT_EQ(qwen->vocab_size(), 463);
  EXPECT_TRUE(qwen->is_special(*qwen->eos_id()));
  EXPECT_FALSE(qwen->is_special(*qwen->id_of("<think>")));
  EXPECT_EQ(qwen->token_of(*qwen->id_of("<think>")), "<think>");
  EXPECT_EQ(qwen->id_of("no such token"), std::nullopt);
  EXPECT_EQ(qwen->token_of(-1), "");
  EXPECT_EQ(qwen->token_of(1 << 30), "");
  const auto llama3 = Tokenizer::load(test::golden("tokenizers/llama3"));
  EXPECT_EQ(llama3->bos_id(), 430);
  EXPECT_EQ(llama3->eos_id(), llama3->id_of("<|eot_id|>"));
  EXPECT_FALSE(Tokenizer::load(test::golden("tokenizers/llama2"))->has_chat_template());
}

TEST(TokenizeCase, Rows) {
  const auto t = Tokenizer::load(test::golden("tokenizers/llama3"));
  EXPECT_EQ(run_tokenize_case(*t, {{"text", "a"}})["ids"].get<Ids>(), t->encode("a", false));
  EXPECT_EQ(run_tokenize_case(*t, {{"text", "a"}, {"add_special_tokens", true}})["ids"].get<Ids>(),
            t->encode("a", true));
  EXPECT_THROW(run_tokenize_case(*t, {{"prompt", "a"}}), Error);
  EXPECT_THROW(run_tokenize_case(*t, OrderedJson::array()), Error);
  EXPECT_THROW(run_tokenize_case(*t, {{"messages", "a"}}), Error);
}

}  // namespace
}  // namespace keel
