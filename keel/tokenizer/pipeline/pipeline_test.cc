// The parts: fast scanners against PCRE2, normal forms against utf8proc, BPE against a plain loop.
#include <gtest/gtest.h>
#include <utf8proc.h>

#include "keel/tokenizer/pipeline/bpe.h"
#include "keel/tokenizer/pipeline/byte_alphabet.h"
#include "keel/tokenizer/pipeline/known_split.h"
#include "keel/tokenizer/pipeline/regex.h"
#include "keel/tokenizer/pipeline/unicode_form.h"
#include "keel/tokenizer/test_util.h"

namespace keel {
namespace {

std::vector<std::string> split_pcre(const Regex& regex, const std::string& text) {
  Regex::Matcher matcher(regex);
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const auto m = matcher.find(text, at);
    if (!m || m->begin != at) return {"a gap before", text.substr(at)};
    out.push_back(text.substr(at, m->end - at));
    at = m->end;
  }
  return out;
}

TEST(KnownSplit, EqualsPcre2) {
  std::mt19937 rng(1);
  for (const char* pattern : {kGpt2Pattern, kDigits1Pattern, kDigits3Pattern}) {
    const auto rule = known_split(pattern);
    ASSERT_TRUE(rule);
    const Regex regex(pattern, "test");
    for (int i = 0; i < 20000; ++i) {
      const std::string text = test::random_text(rng, 1 + rng() % 16);
      std::vector<Range> ranges;
      split_known(*rule, text, {0, text.size()}, ranges);
      std::vector<std::string> got;
      for (const Range r : ranges) got.push_back(text.substr(r.begin, r.end - r.begin));
      ASSERT_EQ(got, split_pcre(regex, text)) << pattern << "\n" << testing::PrintToString(text);
    }
  }
  EXPECT_FALSE(known_split("\\s+"));
}

TEST(KnownSplit, LookAheadStopsAtTheRange) {
  std::vector<Range> ranges;
  split_known(KnownSplit::kGpt2, "a  b", {0, 3}, ranges);
  ASSERT_EQ(ranges.size(), 2u);
  EXPECT_EQ(ranges[1].end, 3u);
}

TEST(Unicode, LossyMatchesMaximalSubparts) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(unicode::to_valid("a\xFF"
                              "b"),
            "a" + r + "b");
  EXPECT_EQ(unicode::to_valid("\xE4\xBD"), r);  // a cut sequence is one
  EXPECT_EQ(unicode::to_valid("\xE4\xBD"
                              "x"),
            r + "x");
  EXPECT_EQ(unicode::to_valid("\xED\xA0\x80"), r + r + r);  // a surrogate is three
  EXPECT_EQ(unicode::to_valid("\xF4\x90\x80\x80"), r + r + r + r);
  EXPECT_EQ(unicode::to_valid("\xC0\xAF"), r + r);
  std::string out;
  EXPECT_EQ(unicode::append_lossy(out, "ab\xF0\x9F", false), 2u);
  EXPECT_EQ(out, "ab");
}

TEST(UnicodeForm, EqualsUtf8proc) {
  std::mt19937 rng(2);
  const struct {
    UnicodeForm form;
    utf8proc_uint8_t* (*reference)(const utf8proc_uint8_t*);
  } cases[] = {{{false, true}, utf8proc_NFC},
               {{false, false}, utf8proc_NFD},
               {{true, true}, utf8proc_NFKC},
               {{true, false}, utf8proc_NFKD}};
  for (const auto& [form, reference] : cases) {
    for (int i = 0; i < 10000; ++i) {
      std::string text = test::random_text(rng, 1 + rng() % 12);
      for (int k = 0; k < 4; ++k) {  // marks and Hangul parts that reorder and compose
        const char32_t base = rng() % 2 ? 0x300 : 0x1100;
        unicode::append(text, base + static_cast<char32_t>(rng() % 0x100));
      }
      std::erase(text, '\0');
      Text t;
      t.bytes = text;
      t.tracked = true;
      t.spans.resize(text.size());
      to_unicode_form(t, form);
      auto* expected = reference(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str()));
      ASSERT_EQ(t.bytes, reinterpret_cast<const char*>(expected)) << testing::PrintToString(text);
      ASSERT_EQ(t.spans.size(), t.bytes.size());
      free(expected);
    }
  }
}

// A vocabulary trained on nothing: random merges over a small alphabet, so that ties, overlaps and
// unreachable words are common.
Json random_bpe(std::mt19937& rng, const std::vector<std::string>& alphabet, int num_merges) {
  Json model = {{"type", "BPE"}, {"vocab", Json::object()}, {"merges", Json::array()}};
  std::vector<std::string> tokens = alphabet;
  for (int i = 0; i < num_merges; ++i) {
    const std::string a = tokens[rng() % tokens.size()], b = tokens[rng() % tokens.size()];
    if (std::find(tokens.begin(), tokens.end(), a + b) == tokens.end()) tokens.push_back(a + b);
    model["merges"].push_back({a, b});
  }
  for (size_t i = 0; i < tokens.size(); ++i) model["vocab"][tokens[i]] = i;
  return model;
}

// The definition, as a plain loop.
std::vector<std::string> plain_bpe(const Json& model, std::vector<std::string> parts) {
  std::map<std::pair<std::string, std::string>, size_t> ranks;
  for (size_t i = 0; i < model["merges"].size(); ++i) {
    ranks[{model["merges"][i][0], model["merges"][i][1]}] = i;
  }
  for (;;) {
    size_t best = 0, best_rank = SIZE_MAX;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto it = ranks.find({parts[i], parts[i + 1]});
      if (it != ranks.end() && it->second < best_rank) {
        best = i;
        best_rank = it->second;
      }
    }
    if (best_rank == SIZE_MAX) return parts;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(Bpe, ShortAndLongWordsEqualThePlainLoop) {
  std::mt19937 rng(3);
  const std::vector<std::string> alphabet = {"a", "b", "c", "\xC3\xA9", "\xE2\x96\x81"};
  for (int round = 0; round < 60; ++round) {
    const Json json = random_bpe(rng, alphabet, 1 + static_cast<int>(rng() % 40));
    const Component c{json, "test"};
    const Bpe bpe(c, read_vocabulary(c), false);
    for (const size_t length : {1, 2, 3, 7, 20, 47, 48, 49, 50, 200}) {
      std::vector<std::string> parts;
      std::string word;
      for (size_t i = 0; i < length; ++i) {
        parts.push_back(alphabet[rng() % alphabet.size()]);
        word += parts.back();
      }
      std::vector<int32_t> expected;
      for (const auto& p : plain_bpe(json, parts)) expected.push_back(json["vocab"][p]);
      ModelOutput out;
      out.want_bytes = true;
      bpe.tokenize(word, out);
      ASSERT_EQ(out.ids, expected) << word << json.dump();
      size_t bytes = 0;
      for (const uint32_t n : out.num_bytes) bytes += n;
      EXPECT_EQ(bytes, word.size());
    }
  }
}

TEST(Bpe, UnknownCodePoints) {
  Json json = {{"type", "BPE"},
               {"vocab", {{"<unk>", 0}, {"a", 1}, {"b", 2}, {"ab", 3}}},
               {"merges", {"a b"}},
               {"unk_token", "<unk>"},
               {"fuse_unk", true}};
  const auto encode = [&](const std::string& word) {
    const Component c{json, "test"};
    ModelOutput out;
    Bpe(c, read_vocabulary(c), false).tokenize(word, out);
    return out.ids;
  };
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(encode("abxya"), (Ids{3, 0, 1}));
  json["fuse_unk"] = false;
  EXPECT_EQ(encode("abxya"), (Ids{3, 0, 0, 1}));
  json["unk_token"] = nullptr;
  EXPECT_EQ(encode("abxya"), (Ids{3, 1}));
  json["byte_fallback"] = true;
  json["vocab"]["<0x78>"] = 4;
  EXPECT_EQ(encode("axy"), (Ids{1, 4}));
}

TEST(ByteAlphabet, RoundTrip) {
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  EXPECT_EQ(bytes_of_alphabet(alphabet_of_bytes(all)), all);
  EXPECT_EQ(alphabet_of_bytes(" a\n"),
            "\xC4\xA0"
            "a\xC4\x8A");
  EXPECT_EQ(bytes_of_alphabet("\xE2\x96\x81"), std::nullopt);
}

}  // namespace
}  // namespace keel
