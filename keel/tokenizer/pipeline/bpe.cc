#include "keel/tokenizer/pipeline/bpe.h"

#include <algorithm>
#include <queue>

#include "keel/tokenizer/pipeline/byte_alphabet.h"
#include "keel/tokenizer/pipeline/unicode.h"

namespace keel {
namespace {

constexpr size_t kShortWord = 48;  // symbols; the array scan is quicker up to here
constexpr size_t kJointBits = 1u << 18;

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

size_t pair_hash(uint64_t key) {
  key *= 0x9E3779B97F4A7C15ull;
  return static_cast<size_t>(key ^ key >> 32);
}

// Where the last code point before `at` and the one from `at` fall in the Bloom table.
size_t joint_hash(char32_t before, char32_t after) {
  return pair_hash(uint64_t{before} << 32 | after) % kJointBits;
}

}  // namespace

Bpe::Bpe(const Component& c, const TokenList& vocabulary, bool byte_level)
    : byte_level_(byte_level) {
  TokenList entries;
  entries.reserve(vocabulary.size());
  int32_t max_id = -1;
  for (const auto& [token, id] : vocabulary) {
    max_id = std::max(max_id, id);
    if (!byte_level) {
      entries.emplace_back(token, id);
    } else if (auto bytes = bytes_of_alphabet(token)) {
      entries.emplace_back(std::move(*bytes), id);
    }
  }
  vocabulary_.build(entries);
  read_options(c);
  read_merges(c, byte_level);
  for (int b = 0; b < 256; ++b) {
    const std::string key =
        byte_level ? std::string(1, static_cast<char>(b)) : fmt::format("<0x{:02X}>", b);
    byte_ids_[static_cast<size_t>(b)] = vocabulary_.find(key);
  }
  has_byte_tokens_ = byte_fallback_ && !byte_level_;
  if (!byte_level) mark_joints(entries);
  can_cut_ = can_cut();
  whole_.assign(static_cast<size_t>(max_id + 1), false);
  ModelOutput out;
  for (const auto& [token, id] : entries) {
    if (token.empty() || vocabulary_.find(token) != id) continue;
    out.ids.clear();
    if (!ignore_merges_) merge_word(token, out);
    whole_[static_cast<size_t>(id)] = ignore_merges_ || (out.ids.size() == 1 && out.ids[0] == id);
  }
}

void Bpe::read_options(const Component& c) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    KEEL_REQUIRE(c.get<std::string>(key, "").empty(), "[{}.{}] expected none, got '{}'", c.where,
                 key, c.get<std::string>(key, ""));
  }
  KEEL_REQUIRE(c.get("dropout", 0.0) == 0.0, "[{}.dropout] expected none, got {}", c.where,
               c.get("dropout", 0.0));
  byte_fallback_ = c.get("byte_fallback", false);
  fuse_unk_ = c.get("fuse_unk", false);
  ignore_merges_ = c.get("ignore_merges", false);
  const auto unk = c.get<std::string>("unk_token", "");
  if (unk.empty()) return;
  unk_id_ = vocabulary_.find(byte_level_ ? bytes_of_alphabet(unk).value_or(unk) : unk);
}

void Bpe::read_merges(const Component& c, bool byte_level) {
  const Component list = c.child("merges");
  KEEL_REQUIRE(list.json.is_array(), "[{}] expected a list", list.where);
  size_t slots = 16;
  while (slots < list.json.size() * 2) slots *= 2;
  merges_.assign(slots, Merge{});
  merge_mask_ = slots - 1;
  uint32_t rank = 0;
  const auto text_of = [&](const std::string& token) {
    return byte_level ? bytes_of_alphabet(token).value_or("") : token;
  };
  for (const Json& item : list.json) {
    std::string left, right;
    if (item.is_string()) {
      const auto& both = item.get_ref<const std::string&>();
      const size_t blank = both.find(' ');
      left = both.substr(0, blank);
      if (blank != std::string::npos) right = both.substr(blank + 1);
    } else if (item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string()) {
      left = item[0].get<std::string>();
      right = item[1].get<std::string>();
    }
    left = text_of(left);
    right = text_of(right);
    const int32_t a = vocabulary_.find(left), b = vocabulary_.find(right);
    const int32_t joined = vocabulary_.find(left + right);
    KEEL_REQUIRE(!left.empty() && !right.empty() && a >= 0 && b >= 0 && joined >= 0,
                 "[{}[{}]] expected two tokens whose concatenation is a token, got {}", list.where,
                 rank, item.dump(-1, ' ', false, Json::error_handler_t::replace));
    add_merge(pair_key(a, b), rank++, joined);
  }
}

void Bpe::add_merge(uint64_t pair, uint32_t rank, int32_t id) {
  size_t i = pair_hash(pair) & merge_mask_;
  while (merges_[i].pair != kNoPair && merges_[i].pair != pair) i = (i + 1) & merge_mask_;
  merges_[i] = {pair, rank, id};
}

inline const Bpe::Merge* Bpe::find_merge(int32_t left, int32_t right) const {
  const uint64_t pair = pair_key(left, right);
  for (size_t i = pair_hash(pair) & merge_mask_;; i = (i + 1) & merge_mask_) {
    if (merges_[i].pair == pair) return &merges_[i];
    if (merges_[i].pair == kNoPair) return nullptr;
  }
}

bool Bpe::can_cut() const {
  if (byte_level_ || ignore_merges_) return false;
  const auto is_byte_token = [&](int32_t id) {
    return std::find(byte_ids_.begin(), byte_ids_.end(), id) != byte_ids_.end();
  };
  // Unknown code points may fuse with their neighbours, so all must have byte tokens.
  const bool all_known = has_byte_tokens_ && !is_byte_token(-1);
  if (!all_known && fuse_unk_) return false;
  // Byte tokens and the unknown token do not show in the joints of code points.
  return std::none_of(merges_.begin(), merges_.end(), [&](const Merge& m) {
    const auto left = static_cast<int32_t>(m.pair >> 32), right = static_cast<int32_t>(m.pair);
    return m.pair != kNoPair &&
           (left == unk_id_ || right == unk_id_ ||
            (has_byte_tokens_ && (is_byte_token(left) || is_byte_token(right))));
  });
}

// Only whole code points become symbols here, so a merge joins across a boundary only if some
// token holds the two code points at it.
void Bpe::mark_joints(const TokenList& vocabulary) {
  joints_.assign(kJointBits / 64, 0);
  for (const auto& [token, id] : vocabulary) {
    const auto points = unicode::to_code_points(token);
    for (size_t i = 1; i < points.size(); ++i) {
      const size_t bit = joint_hash(points[i - 1], points[i]);
      joints_[bit / 64] |= uint64_t{1} << bit % 64;
    }
  }
}

bool Bpe::may_join(std::string_view word, size_t at) const {
  const char32_t before = unicode::decode(word.data() + unicode::previous(word, at)).value;
  const size_t bit = joint_hash(before, unicode::decode(word.data() + at).value);
  return (joints_[bit / 64] >> bit % 64 & 1) != 0;
}

void Bpe::tokenize(std::string_view word, ModelOutput& out) const {
  const auto whole = [&](std::string_view part) {
    const int32_t id = vocabulary_.find(part);
    if (id < 0 || !whole_[static_cast<size_t>(id)]) return false;
    out.add(id, part.size());
    return true;
  };
  if (whole(word)) return;
  if (!can_cut_ || word.size() <= kShortWord) return merge_word(word, out);
  size_t begin = 0;
  for (size_t at = unicode::decode(word.data()).num_bytes; at < word.size();
       at += unicode::decode(word.data() + at).num_bytes) {
    if (may_join(word, at)) continue;
    const std::string_view part = word.substr(begin, at - begin);
    if (!whole(part)) merge_word(part, out);
    begin = at;
  }
  const std::string_view part = word.substr(begin);
  if (!whole(part)) merge_word(part, out);
}

void Bpe::merge_word(std::string_view word, ModelOutput& out) const {
  thread_local std::vector<Symbol> symbols;
  symbols.clear();
  split_symbols(word, symbols);
  if (symbols.size() <= kShortWord) {
    merge_short(symbols);
  } else {
    merge_long(symbols);
  }
  for (const Symbol& s : symbols) out.add(s.id, s.num_bytes);
  if (symbols.capacity() > 1u << 16) symbols = {};
}

void Bpe::split_symbols(std::string_view word, std::vector<Symbol>& symbols) const {
  Symbol unknown{-1, 0};
  const auto flush = [&] {
    if (unknown.id >= 0) symbols.push_back(unknown);
    unknown = {-1, 0};
  };
  for (size_t i = 0; i < word.size();) {
    const uint32_t n = byte_level_ ? 1 : unicode::decode(word.data() + i).num_bytes;
    const std::string_view part = word.substr(i, n);
    i += n;
    const int32_t id =
        byte_level_ ? byte_ids_[static_cast<uint8_t>(part[0])] : vocabulary_.find(part);
    if (id >= 0) {
      flush();
      symbols.push_back({id, n});
      continue;
    }
    const auto known = [&](char b) { return byte_ids_[static_cast<uint8_t>(b)] >= 0; };
    if (has_byte_tokens_ && std::all_of(part.begin(), part.end(), known)) {
      for (const char b : part) symbols.push_back({byte_ids_[static_cast<uint8_t>(b)], 1});
      continue;
    }
    if (unk_id_ < 0) continue;  // without an unknown token such text has no ids at all
    if (!fuse_unk_) flush();
    unknown = {unk_id_, unknown.num_bytes + n};
  }
  flush();
}

void Bpe::merge_short(std::vector<Symbol>& symbols) const {
  size_t n = symbols.size();
  if (n < 2) return;
  std::array<uint32_t, kShortWord> ranks;
  std::array<int32_t, kShortWord> ids;
  const auto look = [&](size_t i) {
    const Merge* m = find_merge(symbols[i].id, symbols[i + 1].id);
    ranks[i] = m ? m->rank : kNoRank;
    ids[i] = m ? m->id : -1;
  };
  for (size_t i = 0; i + 1 < n; ++i) look(i);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == kNoRank) break;
    symbols[best] = {ids[best], symbols[best].num_bytes + symbols[best + 1].num_bytes};
    --n;
    for (size_t i = best + 1; i < n; ++i) {
      symbols[i] = symbols[i + 1];
      if (i + 1 < n) {
        ranks[i] = ranks[i + 1];
        ids[i] = ids[i + 1];
      }
    }
    if (best > 0) look(best - 1);
    if (best + 1 < n) look(best);
  }
  symbols.resize(n);
}

void Bpe::merge_long(std::vector<Symbol>& symbols) const {
  struct Candidate {
    uint32_t rank;
    uint32_t at;
    int32_t left, right, joined;
    bool operator>(const Candidate& o) const { return rank != o.rank ? rank > o.rank : at > o.at; }
  };
  const auto n = static_cast<uint32_t>(symbols.size());
  std::vector<uint32_t> previous(n), next(n);
  std::vector<Candidate> heap;
  heap.reserve(n);
  const auto candidate = [&](uint32_t i, uint32_t j) -> std::optional<Candidate> {
    const Merge* m = find_merge(symbols[i].id, symbols[j].id);
    if (!m) return std::nullopt;
    return Candidate{m->rank, i, symbols[i].id, symbols[j].id, m->id};
  };
  for (uint32_t i = 0; i < n; ++i) {
    previous[i] = i - 1;  // wraps to n's "none" below for i = 0; never followed there
    next[i] = i + 1;
    if (i + 1 < n) {
      if (const auto c = candidate(i, i + 1)) heap.push_back(*c);
    }
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue(std::greater<>{},
                                                                               std::move(heap));
  while (!queue.empty()) {
    const Candidate c = queue.top();
    queue.pop();
    const uint32_t right = next[c.at];
    // A merged-away symbol has id -1; any other change shows in the ids.
    if (symbols[c.at].id != c.left || right >= n || symbols[right].id != c.right) continue;
    symbols[c.at] = {c.joined, symbols[c.at].num_bytes + symbols[right].num_bytes};
    symbols[right].id = -1;
    next[c.at] = next[right];
    if (next[right] < n) previous[next[right]] = c.at;
    if (c.at > 0) {
      if (const auto p = candidate(previous[c.at], c.at)) queue.push(*p);
    }
    if (next[c.at] < n) {
      if (const auto p = candidate(c.at, next[c.at])) queue.push(*p);
    }
  }
  std::erase_if(symbols, [](const Symbol& s) { return s.id < 0; });
}

}  // namespace keel
