// Byte-pair encoding: the pair with the lowest rank is merged first, the leftmost of equals.
// Three levels, each exact:
//   1. A word that is a token and whose own merges lead to itself is one lookup; this immutable
//      cache is made on loading and covers most words of ordinary text.
//   2. A short word is merged in an array, by scanning for the lowest rank.
//   3. A long one is cut where no token of the vocabulary could reach across and then merged with a
//      priority queue over a linked list, in O(n log n).
#pragma once

#include <array>
#include <vector>

#include "keel/tokenizer/pipeline/model.h"
#include "keel/tokenizer/pipeline/vocabulary.h"

namespace keel {

class Bpe : public Model {
 public:
  Bpe(const Component& c, const TokenList& vocabulary, bool byte_level);
  void tokenize(std::string_view word, ModelOutput& out) const override;

 private:
  struct Symbol {
    int32_t id;
    uint32_t num_bytes;
  };
  struct Merge {
    uint64_t pair = kNoPair;
    uint32_t rank = kNoRank;
    int32_t id = -1;
  };
  static constexpr uint64_t kNoPair = ~uint64_t{0};
  static constexpr uint32_t kNoRank = ~uint32_t{0};

  void read_options(const Component& c);
  void read_merges(const Component& c, bool byte_level);
  void add_merge(uint64_t pair, uint32_t rank, int32_t id);
  void mark_joints(const TokenList& vocabulary);
  bool can_cut() const;
  bool may_join(std::string_view word, size_t at) const;

  const Merge* find_merge(int32_t left, int32_t right) const;
  void merge_word(std::string_view word, ModelOutput& out) const;
  void split_symbols(std::string_view word, std::vector<Symbol>& symbols) const;
  void merge_short(std::vector<Symbol>& symbols) const;
  void merge_long(std::vector<Symbol>& symbols) const;

  Vocabulary vocabulary_;
  std::vector<bool> whole_;  // by id: the token's own text encodes to the token
  std::vector<Merge> merges_;
  size_t merge_mask_ = 0;
  std::array<int32_t, 256> byte_ids_;  // byte level: the token of one byte; else of "<0xNN>"
  std::vector<uint64_t> joints_;       // Bloom bits of neighbouring code points inside tokens
  int32_t unk_id_ = -1;
  bool byte_level_;
  bool can_cut_ = false;
  bool byte_fallback_ = false;
  bool has_byte_tokens_ = false;
  bool fuse_unk_ = false;
  bool ignore_merges_ = false;
};

}  // namespace keel
