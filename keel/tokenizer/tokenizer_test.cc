// Components that the golden tokenizers do not have, properties on random input, bad files.
#include "keel/tokenizer/tokenizer.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <thread>

#include "keel/tokenizer/test_util.h"

namespace keel {
namespace {

using Ids = std::vector<int32_t>;

// A word-level model over `words` (ids in order), so that pre-tokenizers show in the ids.
Json word_level(const std::vector<std::string>& words) {
  Json json = {
      {"model", {{"type", "WordLevel"}, {"vocab", Json::object()}, {"unk_token", "<unk>"}}}};
  json["model"]["vocab"]["<unk>"] = 0;
  for (size_t i = 0; i < words.size(); ++i) json["model"]["vocab"][words[i]] = i + 1;
  return json;
}

std::shared_ptr<const Tokenizer> make(const Json& json, const Json& config = Json()) {
  const test::TempDir dir;
  dir.write("tokenizer.json", json.dump());
  if (!config.is_null()) dir.write("tokenizer_config.json", config.dump());
  return Tokenizer::load(dir.path());
}

Ids encode(const Json& json, const std::string& text) { return make(json)->encode(text, false); }

std::string error_of(const Json& json) {
  try {
    make(json);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInvalid);
    return e.what();
  }
  return "no error";
}

TEST(Tokenizer, WordLevelWithWhitespaceSplit) {
  Json json = word_level({"w1", "w2"});
  json["pre_tokenizer"] = {{"type", "WhitespaceSplit"}};
  json["added_tokens"] = {{{"id", 3}, {"content", "<eos>"}, {"special", true}}};
  const auto t =
      make(json, {{"eos_token", {{"content", "<eos>"}}},
                  {"chat_template", "{% for m in messages %}{{ m['content'] }} {% endfor %}"}});
  EXPECT_EQ(t->encode(" w2\tw1  x<eos>", false), (Ids{2, 1, 0, 3}));
  EXPECT_EQ(t->decode(Ids{2, 1, 0, 3}, false), "w2 w1 <unk> <eos>");
  EXPECT_EQ(t->decode(Ids{2, 1, 3}, true), "w2 w1");
  EXPECT_EQ(t->eos_id(), 3);
  EXPECT_EQ(t->apply_chat_template({{{"role", "user"}, {"content", "w1"}}}, {}), "w1 ");
}

TEST(Tokenizer, SplitBehaviors) {
  const auto with = [](const char* behavior, bool invert) {
    Json json = word_level({"a", "-", "b", "a-", "-b", "--", "a--", "--b"});
    json["pre_tokenizer"] = {{"type", "Split"},
                             {"pattern", {{"String", "-"}}},
                             {"behavior", behavior},
                             {"invert", invert}};
    return encode(json, "a--b");
  };
  EXPECT_EQ(with("Isolated", false), (Ids{1, 2, 2, 3}));
  EXPECT_EQ(with("Removed", false), (Ids{1, 3}));
  EXPECT_EQ(with("Removed", true), (Ids{2, 2}));
  EXPECT_EQ(with("MergedWithPrevious", false), (Ids{4, 2, 3}));
  EXPECT_EQ(with("MergedWithNext", false), (Ids{1, 2, 5}));
  EXPECT_EQ(with("Contiguous", false), (Ids{1, 6, 3}));
}

TEST(Tokenizer, DigitsPunctuationAndWhitespace) {
  Json json = word_level({"a", "1", "2", "12", "!", "?", "!?"});
  json["pre_tokenizer"] = {{"type", "Digits"}, {"individual_digits", true}};
  EXPECT_EQ(encode(json, "a12a"), (Ids{1, 2, 3, 1}));
  json["pre_tokenizer"]["individual_digits"] = false;
  EXPECT_EQ(encode(json, "a12a"), (Ids{1, 4, 1}));
  json["pre_tokenizer"] = {{"type", "Punctuation"}};
  EXPECT_EQ(encode(json, "a!?"), (Ids{1, 5, 6}));
  json["pre_tokenizer"] = {{"type", "Whitespace"}};
  EXPECT_EQ(encode(json, " a!? 12"), (Ids{1, 7, 4}));
}

TEST(Tokenizer, MetaspaceSchemes) {
  const std::string mark = "\xE2\x96\x81";
  const auto with = [&](const char* scheme) {
    Json json = word_level({"a", mark + "a", mark});
    json["pre_tokenizer"] = {
        {"type", "Metaspace"}, {"replacement", mark}, {"prepend_scheme", scheme}, {"split", true}};
    json["decoder"] = {{"type", "Metaspace"}, {"replacement", mark}, {"prepend_scheme", scheme}};
    json["added_tokens"] = {{{"id", 4}, {"content", "<x>"}, {"special", true}}};
    return make(json);
  };
  EXPECT_EQ(with("always")->encode("a a<x>a", false), (Ids{2, 2, 4, 2}));
  EXPECT_EQ(with("first")->encode("a a<x>a", false), (Ids{2, 2, 4, 1}));
  EXPECT_EQ(with("never")->encode("a a<x>a", false), (Ids{1, 2, 4, 1}));
  EXPECT_EQ(with("always")->encode("a  a", false), (Ids{2, 3, 2}));
  EXPECT_EQ(with("always")->decode(Ids{2, 2}, false), "a a");
  EXPECT_EQ(with("never")->decode(Ids{2, 2}, false), " a a");
}

TEST(Tokenizer, Normalizers) {
  const auto with = [](const Json& normalizer, const std::string& text) {
    Json json = word_level({"ab", "fi", "e", "x y"});
    json["normalizer"] = normalizer;
    return encode(json, text);
  };
  EXPECT_EQ(with({{"type", "Lowercase"}}, "AB"), Ids{1});
  EXPECT_EQ(with({{"type", "NFKC"}}, "\xEF\xAC\x81"), Ids{2});
  const Json accents = {{{"type", "NFD"}}, {{"type", "StripAccents"}}};
  EXPECT_EQ(with({{"type", "Sequence"}, {"normalizers", accents}}, "\xC3\xA9"), Ids{3});
  EXPECT_EQ(with({{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}}, " ab\n"),
            Ids{1});
  EXPECT_EQ(with({{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}}, " ab\n"),
            Ids{0});
  const Json replace = {{"type", "Replace"}, {"pattern", {{"Regex", "\\s+"}}}, {"content", " "}};
  EXPECT_EQ(with(replace, "x \t y"), Ids{4});
}

TEST(Tokenizer, AddedTokenOptions) {
  Json json = word_level({"a", "b", " a", "a "});
  const auto with = [&](Json token, const std::string& text) {
    token["id"] = 9;
    token["content"] = "<m>";
    json["added_tokens"] = {token};
    return encode(json, text);
  };
  EXPECT_EQ(with({}, "a <m> b"), (Ids{4, 9, 0}));
  EXPECT_EQ(with({{"lstrip", true}}, "a <m>b"), (Ids{1, 9, 2}));
  EXPECT_EQ(with({{"rstrip", true}}, "a<m> \n b"), (Ids{1, 9, 2}));
  EXPECT_EQ(with({{"single_word", true}}, "a<m>"), Ids{0});
  json["normalizer"] = {{"type", "Lowercase"}};
  EXPECT_EQ(with({{"normalized", true}}, "a<M>b"), (Ids{1, 9, 2}));
  EXPECT_EQ(with({{"normalized", false}}, "a<M>b"), Ids{0});
  // The longest of several that begin at one place wins.
  json["added_tokens"] = {{{"id", 8}, {"content", "<m"}}, {{"id", 9}, {"content", "<m>"}}};
  EXPECT_EQ(encode(json, "<m><ma"), (Ids{9, 8, 1}));
}

TEST(Tokenizer, SmolLmStyle) {
  Json json = {{"model", {{"type", "BPE"}, {"vocab", Json::object()}, {"merges", {"\xC4\xA0 a"}}}},
               {"pre_tokenizer",
                {{"type", "Sequence"},
                 {"pretokenizers",
                  {{{"type", "Digits"}, {"individual_digits", true}},
                   {{"type", "ByteLevel"},
                    {"add_prefix_space", false},
                    {"trim_offsets", true},
                    {"use_regex", true}}}}}},
               {"decoder", {{"type", "ByteLevel"}}}};
  int id = 0;
  for (const char* token : {"a", "1", "2", "\xC4\xA0",
                            "\xC4\xA0"
                            "a"}) {
    json["model"]["vocab"][token] = id++;
  }
  EXPECT_EQ(encode(json, "a12 a 1"), (Ids{0, 1, 2, 4, 3, 1}));
  EXPECT_EQ(make(json)->decode(Ids{0, 4, 3, 1}, false), "a a 1");
  json["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true;
  EXPECT_EQ(encode(json, "a"), Ids{4});
}

TEST(Tokenizer, StripDecoderHoldsBackTheEnd) {
  Json json = word_level({"__a_", "_", "b__"});
  json["decoder"] = {
      {"type", "Sequence"},
      {"decoders",
       {{{"type", "Fuse"}}, {{"type", "Strip"}, {"content", "_"}, {"start", 1}, {"stop", 2}}}}};
  const auto t = make(json);
  EXPECT_EQ(t->decode(Ids{1, 2}, false), "_a");
  EXPECT_EQ(t->decode(Ids{1, 3, 2}, false), "_a_b_");
}

// --- properties ---

bool is_nfc(const std::string& text) {
  auto* p = utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str()));
  const bool same = text == reinterpret_cast<const char*>(p);
  free(p);
  return same;
}

TEST(Property, ByteLevelRoundTrip) {
  std::mt19937 rng(4);
  for (const char* name : {"qwen", "llama3"}) {
    const auto t = Tokenizer::load(test::golden(std::string("tokenizers/") + name));
    int tried = 0;
    for (int i = 0; i < 5000; ++i) {
      const std::string text = test::random_text(rng, rng() % 40);
      if (text.find('\0') != std::string::npos || !is_nfc(text)) continue;
      ++tried;
      ASSERT_EQ(t->decode(t->encode(text, false), false), text) << testing::PrintToString(text);
    }
    EXPECT_GT(tried, 500);
  }
}

TEST(Property, RandomBytesAndIdsNeverCrash) {
  std::mt19937 rng(5);
  for (const char* name : {"qwen", "llama3", "llama2"}) {
    const auto t = Tokenizer::load(test::golden(std::string("tokenizers/") + name));
    for (int i = 0; i < 3000; ++i) {
      std::string bytes;
      for (size_t n = rng() % 60; n > 0; --n) bytes += static_cast<char>(rng());
      const Encoding e = t->encode_with_offsets(bytes, true);
      ASSERT_EQ(e.ids, t->encode(bytes, true));
      ASSERT_EQ(e.offsets.size(), e.ids.size());
      const size_t points = unicode::count_code_points(unicode::to_valid(bytes));
      for (const auto& [begin, end] : e.offsets) ASSERT_LE(end, points);

      Ids ids;
      for (size_t n = rng() % 30; n > 0; --n) ids.push_back(static_cast<int32_t>(rng() % 520) - 20);
      const bool skip = rng() % 2;
      const std::string all = t->decode(ids, skip);
      ASSERT_TRUE(unicode::is_valid(all));
      IncrementalDecoder decoder(t, skip);
      std::string joined;
      for (const int32_t id : ids) {
        const std::string piece = decoder.push(id);
        ASSERT_TRUE(unicode::is_valid(piece));
        joined += piece;
      }
      ASSERT_EQ(joined + decoder.finish(), all);
    }
  }
}

TEST(Property, LongRunsAreNotQuadratic) {
  for (const char* name : {"qwen", "llama3", "llama2"}) {
    const auto t = Tokenizer::load(test::golden(std::string("tokenizers/") + name));
    for (const std::string& unit : {std::string("a"), std::string(" "), std::string("e "),
                                    std::string("\xE4\xBD\xA0"), std::string("\xCC\x81")}) {
      std::string text;
      while (text.size() < 200'000) text += unit;
      EXPECT_FALSE(t->encode(text, false).empty());
    }
  }
}

TEST(Property, ThreadsShareOneTokenizer) {
  const auto t = Tokenizer::load(test::golden("tokenizers/qwen"));
  std::mt19937 rng(6);
  std::vector<std::string> texts;
  std::vector<Ids> expected;
  for (int i = 0; i < 50; ++i) {
    texts.push_back(test::random_text(rng, 50));
    expected.push_back(t->encode(texts.back(), false));
  }
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t k = 0; k < wrong.size(); ++k) {
    threads.emplace_back([&, k] {
      for (size_t i = 0; i < texts.size(); ++i) {
        wrong[k] += t->encode(texts[i], false) != expected[i];
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

// --- bad files ---

TEST(BadFiles, Missing) {
  const test::TempDir dir;
  EXPECT_THROW(Tokenizer::load(dir.path()), Error);
  dir.write("tokenizer.json", "{\"model\": {\"type\": \"BPE\", ");
  EXPECT_THROW(Tokenizer::load(dir.path()), Error);
  dir.write("tokenizer.json", "[]");
  EXPECT_THROW(Tokenizer::load(dir.path()), Error);
}

TEST(BadFiles, UnsupportedComponentsAreNamed) {
  const Json good = word_level({"a"});
  for (const char* key : {"normalizer", "pre_tokenizer", "decoder", "post_processor", "model"}) {
    Json json = good;
    json[key]["type"] = "Strange";
    const std::string error = error_of(json);
    EXPECT_NE(error.find("tokenizer.json"), std::string::npos) << error;
    EXPECT_NE(error.find("Strange"), std::string::npos) << error;
    EXPECT_NE(error.find(key), std::string::npos) << error;
  }
}

TEST(BadFiles, WrongTypesAndValues) {
  Json json = word_level({"a"});
  json["pre_tokenizer"] = 3;
  EXPECT_NE(error_of(json), "no error");
  json["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}};
  EXPECT_NE(error_of(json).find("(a"), std::string::npos);
  json["pre_tokenizer"] = nullptr;
  json["added_tokens"] = {{{"id", -1}, {"content", "x"}}};
  EXPECT_NE(error_of(json), "no error");
  json["added_tokens"] = {{{"id", 200'000'000}, {"content", "x"}}};
  EXPECT_NE(error_of(json), "no error");
  json["added_tokens"] = Json::array();
  json["model"]["vocab"]["b"] = "1";
  EXPECT_NE(error_of(json), "no error");
  const Json merges = {
      {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}}}, {"merges", {"a b"}}}}};
  EXPECT_NE(error_of(merges).find("merges[0]"), std::string::npos) << error_of(merges);
}

TEST(BadFiles, BrokenTemplateIsToldWhenUsed) {
  Json json = word_level({"a"});
  const auto t = make(json, {{"chat_template", "{% if x %}"}});
  EXPECT_EQ(t->encode("a", false), Ids{1});
  EXPECT_THROW(t->apply_chat_template(OrderedJson::array(), {}), Error);
  EXPECT_THROW(make(json)->apply_chat_template(OrderedJson::array(), {}), Error);
}

TEST(Tokenizer, TemplateFilesAndNames) {
  const test::TempDir dir;
  dir.write("tokenizer.json", word_level({"a"}).dump());
  const Json config = {{"bos_token", "<s>"},
                       {"chat_template",
                        {{{"name", "default"}, {"template", "plain"}},
                         {{"name", "tool_use"}, {"template", "tools {{ bos_token }}"}}}}};
  dir.write("tokenizer_config.json", config.dump());
  ChatOptions options;
  const auto render = [&] {
    return Tokenizer::load(dir.path())->apply_chat_template(OrderedJson::array(), options);
  };
  EXPECT_EQ(render(), "plain");
  options.tools = {{{"type", "function"}}};
  EXPECT_EQ(render(), "tools <s>");
  dir.write("chat_template.jinja", "{{ add_generation_prompt }} {{ extra }}\n");
  options.add_generation_prompt = true;
  options.kwargs = {{"extra", 3}};
  EXPECT_EQ(render(), "True 3");
}

}  // namespace
}  // namespace keel
