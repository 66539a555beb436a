#include "keel/tokenizer/pipeline/added_tokens.h"

#include <utf8proc.h>

#include <algorithm>

#include "keel/tokenizer/pipeline/unicode.h"

namespace keel {
namespace {

bool is_word(char32_t c) {
  if (c == 0x200C || c == 0x200D) return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) ||
         category == UTF8PROC_CATEGORY_PC;
}

char32_t point_before(std::string_view text, size_t end) {
  return unicode::decode(text.data() + unicode::previous(text, end)).value;
}

}  // namespace

AddedToken read_added_token(const Component& c) {
  AddedToken t;
  t.id = c.get<int32_t>("id");
  t.content = c.get<std::string>("content");
  KEEL_REQUIRE(t.id >= 0 && t.id < 1 << 28, "[{}.id] expected a token id, got {}", c.where, t.id);
  t.special = c.get("special", false);
  t.normalized = c.get("normalized", !t.special);
  t.single_word = c.get("single_word", false);
  t.lstrip = c.get("lstrip", false);
  t.rstrip = c.get("rstrip", false);
  return t;
}

void AddedTokenFinder::add(const AddedToken& token, const std::string& content) {
  if (content.empty()) return;
  first_[static_cast<unsigned char>(content[0])] = true;
  int node = 0;
  for (const char c : content) {
    const auto byte = static_cast<unsigned char>(c);
    auto& next = nodes_[static_cast<size_t>(node)].next;
    const auto it = std::find_if(next.begin(), next.end(),
                                 [&](const auto& edge) { return edge.first == byte; });
    if (it != next.end()) {
      node = it->second;
      continue;
    }
    const int fresh = static_cast<int>(nodes_.size());
    next.emplace_back(byte, fresh);
    nodes_.emplace_back();
    node = fresh;
  }
  nodes_[static_cast<size_t>(node)].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back({token, content.size()});
}

int AddedTokenFinder::longest(std::string_view text, size_t at) const {
  int best = -1;
  const Node* node = &nodes_[0];
  for (size_t i = at; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto it = std::find_if(node->next.begin(), node->next.end(),
                                 [&](const auto& edge) { return edge.first == byte; });
    if (it == node->next.end()) break;
    node = &nodes_[static_cast<size_t>(it->second)];
    if (node->token >= 0) best = node->token;
  }
  return best;
}

std::vector<AddedTokenFinder::Part> AddedTokenFinder::split(std::string_view text) const {
  std::vector<Part> parts;
  size_t done = 0;
  for (size_t at = 0; at < text.size() && !tokens_.empty();) {
    if (!first_[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    const int found = longest(text, at);
    if (found < 0) {
      ++at;
      continue;
    }
    const Entry& entry = tokens_[static_cast<size_t>(found)];
    size_t begin = at, end = at + entry.num_bytes;
    at = end;
    if (entry.token.single_word) {
      const bool word_before = begin > 0 && is_word(point_before(text, begin));
      const bool word_after =
          end < text.size() && is_word(unicode::decode(text.data() + end).value);
      if (word_before || word_after) continue;
    }
    while (entry.token.lstrip && begin > done && unicode::is_space(point_before(text, begin))) {
      begin = unicode::previous(text, begin);
    }
    while (entry.token.rstrip && end < text.size()) {
      const unicode::CodePoint c = unicode::decode(text.data() + end);
      if (!unicode::is_space(c.value)) break;
      end += c.num_bytes;
    }
    if (begin > done) parts.push_back({{done, begin}, -1});
    parts.push_back({{begin, end}, entry.token.id});
    done = end;
    at = std::max(at, end);
  }
  if (done < text.size()) parts.push_back({{done, text.size()}, -1});
  return parts;
}

}  // namespace keel
