#include <filesystem>
#include <fstream>
#include <sstream>

#include "keel/tokenizer/pipeline/byte_alphabet.h"
#include "keel/tokenizer/pipeline/tokenizer_impl.h"
#include "keel/tokenizer/pipeline/unicode.h"

namespace keel {
namespace {

const Json kNull;

std::optional<std::string> read_file(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  KEEL_REQUIRE(in.good(), "[tokenizer] expected a readable file, got an error from '{}'", path);
  return std::move(text).str();
}

// Null if the file is absent.
Json read_json(const std::string& path) {
  const auto text = read_file(path);
  if (!text) return {};
  try {
    return Json::parse(*text);
  } catch (const Json::parse_error& e) {
    throw_invalid("[tokenizer] expected JSON in '{}', got an error at byte {}; is the file whole?",
                  path, e.byte);
  }
}

// "<s>" or {"content": "<s>", ...}
std::optional<std::string> token_content(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string()) {
    return value["content"].get<std::string>();
  }
  return std::nullopt;
}

const Json& member(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) ? object[key] : kNull;
}

constexpr const char* kNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                  "pad_token", "cls_token", "mask_token"};

}  // namespace

Tokenizer::Impl::Token& Tokenizer::Impl::token(int32_t id) {
  if (static_cast<size_t>(id) >= tokens.size()) tokens.resize(static_cast<size_t>(id) + 1);
  return tokens[static_cast<size_t>(id)];
}

void Tokenizer::Impl::load_tokens(const Component& file, TokenList vocabulary) {
  // Ids far above the number of tokens would only cost memory.
  const auto limit = static_cast<int32_t>(vocabulary.size() * 4 + (1u << 20));
  const auto put = [&](int32_t id, const std::string& text) -> Token& {
    KEEL_REQUIRE(id < limit, "[{}] expected dense token ids, got {} for '{}'", file.where, id,
                 text);
    Token& t = token(id);
    t.text = text;
    t.present = true;
    return t;
  };
  for (const auto& [text, id] : vocabulary) put(id, text);

  const Json& list = member(file.json, "added_tokens");
  for (size_t i = 0; i < list.size(); ++i) {
    const AddedToken added =
        read_added_token({list.at(i), fmt::format("{}: added_tokens[{}]", file.where, i)});
    put(added.id, added.content).special = added.special;
    vocabulary.emplace_back(added.content, added.id);
    if (!added.normalized) {
      raw_added.add(added, added.content);
      continue;
    }
    Text content;
    content.bytes = added.content;
    if (normalizer) normalizer->apply(content);
    normalized_added.add(added, content.bytes);
  }
  ids.build(vocabulary);
}

void Tokenizer::Impl::load_special_names(const Json& config) {
  const Json map = read_json(dir + "/special_tokens_map.json");
  for (const Json* source : {&map, &config}) {  // the second wins
    for (const char* name : kNames) {
      if (const auto content = token_content(member(*source, name))) special_names[name] = *content;
    }
  }
  const auto mark = [&](const std::string& text) {
    if (const int32_t id = ids.find(text); id >= 0) token(id).special = true;
  };
  for (const auto& [name, text] : special_names) mark(text);
  for (const Json* source : {&map, &config}) {
    for (const Json& item : member(*source, "additional_special_tokens")) {
      if (const auto content = token_content(item)) mark(*content);
    }
  }
}

void Tokenizer::Impl::load_templates(const Json& config) {
  const auto add = [&](const std::string& name, const std::string& source,
                       const std::string& where) {
    Template& t = templates[name];
    try {
      t.parsed = std::make_unique<ChatTemplate>(source, where);
    } catch (const Error& e) {  // told when it is used: many users need no template
      t.error = e.what();
    }
  };
  const std::string file = dir + "/chat_template.jinja";
  if (const auto source = read_file(file)) return add("default", *source, file);
  const Json& entry = member(config, "chat_template");
  const std::string where = dir + "/tokenizer_config.json: chat_template";
  if (entry.is_string()) return add("default", entry.get<std::string>(), where);
  if (!entry.is_array()) return;
  for (const Json& item : entry) {
    const Json& name = member(item, "name");
    const Json& source = member(item, "template");
    if (name.is_string() && source.is_string()) {
      add(name.get<std::string>(), source.get<std::string>(), where);
    }
  }
}

void Tokenizer::Impl::load(const std::string& directory) {
  dir = directory;
  const std::string path = dir + "/tokenizer.json";
  const Json json = read_json(path);
  KEEL_REQUIRE(json.is_object(),
               "[tokenizer] expected the file '{}', got nothing to read; give a Hugging Face "
               "directory with a tokenizer.json",
               path);
  const auto part = [&](const char* key) {
    return Component{member(json, key), path + ": " + key};
  };
  normalizer = make_normalizer(part("normalizer"));
  bool byte_level = false;
  pre_tokenizer = make_pre_tokenizer(part("pre_tokenizer"), byte_level);
  TokenList vocabulary = read_vocabulary(part("model"));
  model = make_model(part("model"), vocabulary, byte_level);
  load_tokens({json, path}, std::move(vocabulary));
  decoder = std::make_unique<Decoder>(part("decoder"));
  post_processor = make_post_processor(part("post_processor"));
  if (decoder->only_byte_level()) {
    for (Token& t : tokens) t.bytes = bytes_of_alphabet(t.text).value_or(t.text);
  }
  const Json config = read_json(dir + "/tokenizer_config.json");
  load_special_names(config);
  load_templates(config);
}

std::shared_ptr<const Tokenizer> Tokenizer::load(const std::string& dir) {
  auto impl = std::make_unique<Impl>();
  impl->load(dir);
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
}

}  // namespace keel
