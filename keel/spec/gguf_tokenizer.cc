// tokenizer.json and tokenizer_config.json from the tokenizer metadata of a GGUF file.
#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>

#include "keel/io/file_error.h"
#include "keel/spec/gguf_convert.h"

namespace keel {
namespace {

// tokenizer.ggml.token_type
enum TokenType : int64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<int64_t> types;
  std::vector<double> scores;  // may be empty
};

Vocabulary read_vocabulary(const GgufFile& gguf) {
  Vocabulary v;
  v.tokens = gguf.texts("tokenizer.ggml.tokens");
  v.types = gguf.integers("tokenizer.ggml.token_type");
  v.scores = gguf.numbers("tokenizer.ggml.scores");
  const std::string where = gguf.path() + ": tokenizer.ggml.tokens";
  if (v.tokens.empty()) throw_file_error("missing_field", where, "expected tokens, got none");
  if (v.types.empty()) v.types.assign(v.tokens.size(), kNormal);
  if (v.types.size() != v.tokens.size() ||
      (!v.scores.empty() && v.scores.size() != v.tokens.size())) {
    throw_file_error("bad_tokenizer", where, "expected as many types and scores as tokens ({})",
                     v.tokens.size());
  }
  return v;
}

OrderedJson added_tokens(const Vocabulary& v) {
  OrderedJson list = OrderedJson::array();
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    const bool special = v.types[i] == kControl || v.types[i] == kUnknown;
    if (!special && v.types[i] != kUserDefined) continue;
    list.push_back({{"id", i},
                    {"content", v.tokens[i]},
                    {"single_word", false},
                    {"lstrip", false},
                    {"rstrip", false},
                    {"normalized", false},
                    {"special", special}});
  }
  return list;
}

// Unused entries pad the vocabulary to the size of the embedding; they are no tokens.
OrderedJson vocabulary_json(const std::string& path, const Vocabulary& v) {
  OrderedJson::object_t map;
  std::unordered_map<std::string_view, size_t> seen;
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    if (v.types[i] == kUnused) continue;
    if (!seen.try_emplace(v.tokens[i], i).second) {
      throw_file_error("bad_tokenizer", path + ": tokenizer.ggml.tokens",
                       "expected each token once, got token {} again as {}", seen[v.tokens[i]], i);
    }
    // Appended without a look-up: ordered_json searches linearly.
    static_cast<std::vector<std::pair<const std::string, OrderedJson>>&>(map).emplace_back(
        v.tokens[i], i);
  }
  return map;
}

OrderedJson byte_level(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

OrderedJson split(const std::string& regex) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", regex}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

OrderedJson sequence(const char* key, OrderedJson parts) {
  return {{"type", "Sequence"}, {key, std::move(parts)}};
}

// The pre-tokenizers that tokenizer.ggml.pre names.
OrderedJson pre_tokenizer(const GgufFile& gguf, const std::string& pre) {
  const std::string contraction = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|";
  const std::string rest = "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
  if (pre == "gpt-2" || pre == "default") return byte_level(true);
  if (pre == "smollm") {
    return sequence("pretokenizers",
                    {{{"type", "Digits"}, {"individual_digits", true}}, byte_level(true)});
  }
  if (pre == "qwen2") {
    return sequence("pretokenizers", {split(contraction + "\\p{N}" + rest), byte_level(false)});
  }
  if (pre == "llama-bpe" || pre == "llama3") {
    return sequence("pretokenizers",
                    {split(contraction + "\\p{N}{1,3}" + rest), byte_level(false)});
  }
  throw_file_error("unsupported_value", gguf.path() + ": tokenizer.ggml.pre",
                   "expected smollm, qwen2, llama-bpe, gpt-2 or default, got '{}'", pre);
}

// Puts the begin token in front, as the Llama tokenizers do.
OrderedJson begin_template(const std::string& token, int64_t id) {
  const auto special = [&](int type) {
    return OrderedJson{{"SpecialToken", {{"id", token}, {"type_id", type}}}};
  };
  const auto text = [](const char* name, int type) {
    return OrderedJson{{"Sequence", {{"id", name}, {"type_id", type}}}};
  };
  OrderedJson out = {{"type", "TemplateProcessing"}};
  out["single"] = OrderedJson::array({special(0), text("A", 0)});
  out["pair"] = OrderedJson::array({special(0), text("A", 0), special(1), text("B", 1)});
  out["special_tokens"][token] = {
      {"id", token}, {"ids", OrderedJson::array({id})}, {"tokens", OrderedJson::array({token})}};
  return out;
}

// Text of the token whose id a metadata key names; "" if there is none.
std::string token_of(const GgufFile& gguf, const Vocabulary& v, const std::string& key) {
  if (!gguf.has(key)) return "";
  const int64_t id = gguf.integer(key);
  if (id < 0 || id >= static_cast<int64_t>(v.tokens.size())) {
    throw_file_error("tokenizer_mismatch", gguf.path() + ": " + key,
                     "expected an id below {}, got {}", v.tokens.size(), id);
  }
  return v.tokens[static_cast<size_t>(id)];
}

OrderedJson frame(const Vocabulary& v) {
  return {{"version", "1.0"},          {"truncation", nullptr},
          {"padding", nullptr},        {"added_tokens", added_tokens(v)},
          {"normalizer", nullptr},     {"pre_tokenizer", nullptr},
          {"post_processor", nullptr}, {"decoder", nullptr},
          {"model", nullptr}};
}

OrderedJson bpe(OrderedJson vocab, OrderedJson merges) {
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", false},
          {"vocab", std::move(vocab)},
          {"merges", std::move(merges)}};
}

// "gpt2": byte-level BPE with its merges stored.
OrderedJson byte_level_tokenizer(const GgufFile& gguf, const Vocabulary& v) {
  const std::string pre = gguf.text("tokenizer.ggml.pre", "default");
  OrderedJson merges = OrderedJson::array();
  for (const auto& m : gguf.texts("tokenizer.ggml.merges")) {
    const auto space = m.find(' ', 1);  // a token may begin with anything but is not empty
    if (space == std::string::npos) {
      throw_file_error("bad_tokenizer", gguf.path() + ": tokenizer.ggml.merges",
                       "expected 'a b', got '{}'", m);
    }
    merges.push_back({m.substr(0, space), m.substr(space + 1)});
  }
  OrderedJson out = frame(v);
  if (pre == "qwen2") out["normalizer"] = {{"type", "NFC"}};
  out["pre_tokenizer"] = pre_tokenizer(gguf, pre);
  out["post_processor"] = byte_level(true);
  out["decoder"] = byte_level(true);
  out["model"] = bpe(vocabulary_json(gguf.path(), v), std::move(merges));
  out["model"]["ignore_merges"] = pre == "llama-bpe" || pre == "llama3";
  const bool llama3 = pre == "llama-bpe" || pre == "llama3";
  if (gguf.boolean("tokenizer.ggml.add_bos_token", llama3)) {
    const auto begin = token_of(gguf, v, "tokenizer.ggml.bos_token_id");
    if (!begin.empty()) {
      out["post_processor"] = begin_template(begin, gguf.integer("tokenizer.ggml.bos_token_id"));
    }
  }
  return out;
}

// A SentencePiece BPE model has scores instead of merges: every way to make a token of two others
// is a merge, the best score first (ties: by the ids of the parts, as stored scores are distinct
// per token).
OrderedJson merges_of_scores(const Vocabulary& v) {
  std::unordered_map<std::string_view, size_t> ids;
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    if (v.types[i] == kNormal) ids.emplace(v.tokens[i], i);
  }
  struct Merge {
    double score;
    size_t left, right;
  };
  std::vector<Merge> merges;
  for (const auto& [token, id] : ids) {
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ids.find(token.substr(0, cut));
      const auto right = ids.find(token.substr(cut));
      if (left != ids.end() && right != ids.end()) {
        merges.push_back({v.scores[id], left->second, right->second});
      }
    }
  }
  std::ranges::sort(merges, [](const Merge& a, const Merge& b) {
    return std::tie(b.score, a.left, a.right) < std::tie(a.score, b.left, b.right);
  });
  OrderedJson out = OrderedJson::array();
  for (const auto& m : merges) out.push_back({v.tokens[m.left], v.tokens[m.right]});
  return out;
}

// "llama": SentencePiece BPE with byte fallback and U+2581 for spaces.
OrderedJson sentencepiece_tokenizer(const GgufFile& gguf, const Vocabulary& v) {
  if (v.scores.empty()) {
    throw_file_error("missing_field", gguf.path() + ": tokenizer.ggml.scores",
                     "expected scores, got none");
  }
  const std::string space = "\u2581";
  OrderedJson normal = OrderedJson::array(), decode = OrderedJson::array();
  const bool prefix = gguf.boolean("tokenizer.ggml.add_space_prefix", true);
  if (prefix) normal.push_back({{"type", "Prepend"}, {"prepend", space}});
  normal.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", space}});
  decode.push_back({{"type", "Replace"}, {"pattern", {{"String", space}}}, {"content", " "}});
  decode.push_back({{"type", "ByteFallback"}});
  decode.push_back({{"type", "Fuse"}});
  if (prefix) {
    decode.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  OrderedJson out = frame(v);
  out["normalizer"] = sequence("normalizers", std::move(normal));
  out["decoder"] = sequence("decoders", std::move(decode));
  out["model"] = bpe(vocabulary_json(gguf.path(), v), merges_of_scores(v));
  out["model"]["byte_fallback"] = true;
  out["model"]["fuse_unk"] = true;
  const auto unknown = token_of(gguf, v, "tokenizer.ggml.unknown_token_id");
  if (!unknown.empty()) out["model"]["unk_token"] = unknown;
  const auto begin = token_of(gguf, v, "tokenizer.ggml.bos_token_id");
  if (!begin.empty() && gguf.boolean("tokenizer.ggml.add_bos_token", true)) {
    out["post_processor"] = begin_template(begin, gguf.integer("tokenizer.ggml.bos_token_id"));
  }
  return out;
}

}  // namespace

OrderedJson tokenizer_json_of_gguf(const GgufFile& gguf) {
  const Vocabulary v = read_vocabulary(gguf);
  const std::string model = gguf.text("tokenizer.ggml.model");
  if (model == "gpt2") return byte_level_tokenizer(gguf, v);
  if (model == "llama") return sentencepiece_tokenizer(gguf, v);
  throw_file_error("unsupported_value", gguf.path() + ": tokenizer.ggml.model",
                   "expected gpt2 or llama, got '{}'", model);
}

OrderedJson tokenizer_config_of_gguf(const GgufFile& gguf) {
  const Vocabulary v = read_vocabulary(gguf);
  OrderedJson out = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                     {"clean_up_tokenization_spaces", false}};
  constexpr std::array<std::pair<const char*, const char*>, 4> kSpecial = {{
      {"bos_token", "tokenizer.ggml.bos_token_id"},
      {"eos_token", "tokenizer.ggml.eos_token_id"},
      {"unk_token", "tokenizer.ggml.unknown_token_id"},
      {"pad_token", "tokenizer.ggml.padding_token_id"},
  }};
  for (const auto& [name, key] : kSpecial) {
    const auto token = token_of(gguf, v, key);
    if (!token.empty()) out[name] = token;
  }
  const std::string architecture = gguf.text("general.architecture");
  out["model_max_length"] = gguf.integer(architecture + ".context_length", 32768);
  const auto text = gguf.text("tokenizer.chat_template", "");
  if (!text.empty()) out["chat_template"] = text;
  return out;
}

}  // namespace keel
