#include "keel/spec/tokenizer_check.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "keel/io/compressed.h"
#include "keel/io/json_file.h"
#include "keel/spec/fields.h"

namespace keel {
namespace {

namespace fs = std::filesystem;
constexpr const char* kTokenizer = "tokenizer.json";
constexpr const char* kConfig = "tokenizer_config.json";

class TokenizerCheck {
 public:
  TokenizerCheck(const std::string& folder, const ModelSpec& spec, std::vector<Finding>& findings)
      : folder_(folder), spec_(spec), findings_(findings) {}

  void run() {
    const auto tokenizer = read(kTokenizer);
    if (tokenizer) check_document(*tokenizer);
    const auto config = fs::exists(fs::path(folder_) / kConfig) ? read(kConfig) : std::nullopt;
    if (config && tokenizer) check_special(*config);
    check_template(config ? *config : Json::object());
  }

 private:
  void add(Level level, const char* kind, const char* file, const std::string& item,
           const std::string& message) {
    findings_.push_back({level, kind, file, item, message});
  }

  std::optional<Json> read(const char* name) {
    try {
      return read_json_file(folder_ + "/" + name);
    } catch (const FileError& e) {
      findings_.push_back(finding_of(e, name));
      return std::nullopt;
    }
  }

  void check_document(const Json& tokenizer);
  void add_token(const std::string& token, const Json& id, const char* field, bool is_added);
  void check_merges(const Json& merges);
  void check_special(const Json& config);
  void check_template(const Json& config);

  std::string folder_;
  const ModelSpec& spec_;
  std::vector<Finding>& findings_;
  std::unordered_map<std::string, int64_t> ids_;
  std::unordered_map<int64_t, std::string> tokens_;
};

void TokenizerCheck::add_token(const std::string& token, const Json& id, const char* field,
                               bool is_added) {
  if (!id.is_number_unsigned()) {
    add(Level::kError, "bad_tokenizer", kTokenizer, field,
        fmt::format("expected an id >= 0 for '{}', got {}", token, brief(id)));
    return;
  }
  const auto value = static_cast<int64_t>(id.get<uint64_t>());
  if (value < 0 || value >= spec_.vocab) {
    add(Level::kError, "tokenizer_mismatch", kTokenizer, field,
        fmt::format("expected ids below vocab_size {}, got {} for '{}'", spec_.vocab, brief(id),
                    token));
    return;
  }
  const auto [it, fresh] = tokens_.try_emplace(value, token);
  // Added tokens may repeat a word of the vocabulary, with the same id.
  if (!fresh && !(is_added && it->second == token)) {
    add(Level::kError, "bad_tokenizer", kTokenizer, field,
        fmt::format("expected one token per id, got '{}' and '{}' for {}", it->second, token,
                    value));
  }
  ids_[token] = value;
}

void TokenizerCheck::check_document(const Json& tokenizer) {
  const auto model = tokenizer.is_object() ? tokenizer.find("model") : tokenizer.end();
  const bool has_vocab = tokenizer.is_object() && model != tokenizer.end() && model->is_object() &&
                         model->contains("vocab") && (*model)["vocab"].is_object();
  if (!has_vocab) {
    add(Level::kError, "bad_tokenizer", kTokenizer, "model.vocab",
        "expected an object {token: id}, got something else; try: a model with a BPE tokenizer");
    return;
  }
  for (const auto& [token, id] : (*model)["vocab"].items()) {
    add_token(token, id, "model.vocab", false);
  }
  if (model->contains("merges")) check_merges((*model)["merges"]);
  const auto added = tokenizer.find("added_tokens");
  if (added == tokenizer.end() || !added->is_array()) return;
  for (const auto& t : *added) {
    if (t.is_object() && t.contains("content") && t["content"].is_string() && t.contains("id")) {
      add_token(t["content"].get<std::string>(), t["id"], "added_tokens", true);
    } else {
      add(Level::kError, "bad_tokenizer", kTokenizer, "added_tokens",
          "expected objects with id and content, got " + brief(t));
    }
  }
}

// "a b" or ["a", "b"].
std::optional<std::pair<std::string, std::string>> split_merge(const Json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return std::pair(merge[0].get<std::string>(), merge[1].get<std::string>());
  }
  if (!merge.is_string()) return std::nullopt;
  const auto& text = merge.get_ref<const std::string&>();
  const auto space = text.find(' ');
  if (space == std::string::npos) return std::nullopt;
  return std::pair(text.substr(0, space), text.substr(space + 1));
}

void TokenizerCheck::check_merges(const Json& merges) {
  if (!merges.is_array()) {
    add(Level::kError, "bad_tokenizer", kTokenizer, "model.merges",
        "expected a list, got " + std::string(merges.type_name()));
    return;
  }
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto pair = split_merge(merges[i]);
    if (!pair) {
      add(Level::kError, "bad_tokenizer", kTokenizer, "model.merges",
          fmt::format("expected a pair of tokens as merge {}, got {}", i, brief(merges[i])));
      return;
    }
    if (!ids_.contains(pair->first + pair->second)) {
      add(Level::kError, "bad_tokenizer", kTokenizer, "model.merges",
          fmt::format("expected '{}' of merge {} in the vocabulary, got no such token",
                      pair->first + pair->second, i));
      return;
    }
  }
}

// A token given as text or as {"content": text}.
std::optional<std::string> token_text(const Json& config, const char* key) {
  if (!config.is_object() || !config.contains(key)) return std::nullopt;
  const Json& value = config[key];
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string()) {
    return value["content"].get<std::string>();
  }
  return std::nullopt;
}

void TokenizerCheck::check_special(const Json& config) {
  for (const char* key : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
    const auto token = token_text(config, key);
    if (token && !ids_.contains(*token)) {
      add(Level::kError, "tokenizer_mismatch", kConfig, key,
          fmt::format("expected a token of tokenizer.json, got '{}'", *token));
    }
  }
}

void TokenizerCheck::check_template(const Json& config) {
  const auto file = fs::path(folder_) / "chat_template.jinja";
  std::vector<std::string> texts;
  try {
    if (fs::exists(file)) texts.push_back(read_file(file.string(), 16 << 20));
  } catch (const FileError& e) {
    findings_.push_back(finding_of(e, "chat_template.jinja"));
    return;
  }
  const Json* stored =
      config.is_object() && config.contains("chat_template") ? &config["chat_template"] : nullptr;
  if (stored != nullptr && stored->is_string()) texts.push_back(stored->get<std::string>());
  if (stored != nullptr && stored->is_array()) {  // several, by name
    for (const auto& t : *stored) {
      if (auto text = token_text(
              Json{{"t", t.is_object() && t.contains("template") ? t["template"] : Json()}}, "t")) {
        texts.push_back(*text);
      }
    }
  }
  if (texts.empty()) {
    add(Level::kWarn, "bad_template", kConfig, "chat_template",
        "expected a template, got none; prompts that are message lists cannot be used");
  }
  for (const auto& text : texts) {
    const auto wrong = check_template_blocks(text);
    if (!wrong.empty()) add(Level::kError, "bad_template", kConfig, "chat_template", wrong);
  }
}

// First word of a tag, without "-" or "+" and spaces.
std::string_view first_word(std::string_view tag) {
  const auto is_space = [](char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; };
  while (!tag.empty() && (is_space(tag[0]) || tag[0] == '-' || tag[0] == '+')) tag.remove_prefix(1);
  size_t n = 0;
  while (n < tag.size() && (std::isalnum(static_cast<unsigned char>(tag[n])) || tag[n] == '_')) ++n;
  return tag.substr(0, n);
}

// Position of `end` at or after `at`, outside of quoted text if `quotes`.
size_t find_end(std::string_view text, size_t at, std::string_view end, bool quotes) {
  char quote = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (quote != 0) {
      if (c == '\\') {
        ++at;
      } else if (c == quote) {
        quote = 0;
      }
    } else if (quotes && (c == '\'' || c == '"')) {
      quote = c;
    } else if (text.substr(at).starts_with(end)) {
      return at;
    }
  }
  return std::string_view::npos;
}

struct OpenBlock {
  std::string word;
  int64_t line;
};

// Applies one {% tag %} to the stack; returns what is wrong.
std::string apply_tag(std::string_view tag, int64_t line, std::vector<OpenBlock>& open) {
  constexpr std::array<std::string_view, 8> kBlocks = {"for",    "if",    "macro",      "call",
                                                       "filter", "block", "generation", "raw"};
  const auto word = first_word(tag);
  const bool is_block_set = word == "set" && tag.find('=') == std::string_view::npos;
  if (std::ranges::find(kBlocks, word) != kBlocks.end() || is_block_set) {
    open.push_back({std::string(word), line});
  } else if (word.starts_with("end")) {
    if (open.empty() || open.back().word != word.substr(3)) {
      return fmt::format(
          "expected {}, got {{% {} %}} at line {}",
          open.empty() ? "no end of a block" : fmt::format("{{% end{} %}}", open.back().word), word,
          line);
    }
    open.pop_back();
  } else if ((word == "else" || word == "elif") &&
             (open.empty() || (open.back().word != "if" && open.back().word != "for"))) {
    return fmt::format("expected {{% {} %}} inside of if or for, got it at line {}", word, line);
  }
  return "";
}

}  // namespace

std::string check_template_blocks(std::string_view text) {
  std::vector<OpenBlock> open;
  size_t at = 0;
  while ((at = text.find('{', at)) != std::string_view::npos && at + 1 < text.size()) {
    const char kind = text[at + 1];
    if (kind != '%' && kind != '{' && kind != '#') {
      ++at;
      continue;
    }
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<int64_t>(at), '\n');
    const char* end = kind == '%' ? "%}" : kind == '{' ? "}}" : "#}";
    const size_t stop = find_end(text, at + 2, end, kind != '#');
    if (stop == std::string_view::npos) {
      return fmt::format("expected {} after {{{} of line {}, got the end", end, kind, line);
    }
    if (kind == '%') {
      auto wrong = apply_tag(text.substr(at + 2, stop - at - 2), line, open);
      if (!wrong.empty()) return wrong;
    }
    at = stop + 2;
  }
  if (open.empty()) return "";
  return fmt::format("expected {{% end{0} %}} for {{% {0} %}} of line {1}, got the end",
                     open.back().word, open.back().line);
}

void check_tokenizer(const std::string& folder, const ModelSpec& spec,
                     std::vector<Finding>& findings) {
  TokenizerCheck(folder, spec, findings).run();
}

}  // namespace keel
