// Suffix automaton of several growing texts, with counts: how often each token followed each
// context. Online and interleaved; amortised O(1) states and edges for a token, plus one count for
// every context class that ends where the token is appended (about log of the text).
//
// A state is a class of contexts with equal sets of end positions. Its longest member has
// length(s) tokens, its shortest length(link(s)) + 1. Blumer et al. 1985, built as for several
// strings (Mohri, Moreno, Weinstein 2009). Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace keel::sched {

class SuffixAutomaton {
 public:
  static constexpr int32_t kRoot = 0;
  static constexpr int32_t kNone = -1;

  struct Edge {
    int32_t token = 0;
    int32_t target = kNone;
    int32_t count = 0;     // times the token followed this context
    int32_t last_use = 0;  // clock of the latest time
    int32_t next = kNone;  // edges of a state: roughly most frequent first
    int32_t prev = kNone;
  };

  SuffixAutomaton();

  // Appends `token` (>= 0) to the text that ends in `state` (kRoot: empty text); returns the state
  // in which the text ends now. end: position of the token in its text, kept in min_end().
  int32_t extend(int32_t state, int32_t token, int32_t end);

  // The edge of `state` with `token`, or kNone.
  int32_t find(int32_t state, int32_t token) const;
  const Edge& edge(int32_t e) const { return edges_[e]; }
  int32_t first_edge(int32_t state) const { return states_[state].first; }
  int32_t degree(int32_t state) const { return states_[state].degree; }
  // Tokens that followed the contexts of this state; the sum of its edges' counts.
  int32_t total(int32_t state) const { return states_[state].total; }
  int32_t length(int32_t state) const { return states_[state].length; }
  int32_t link(int32_t state) const { return states_[state].link; }
  // `end` of the first token that made this class of contexts.
  int32_t min_end(int32_t state) const { return states_[state].min_end; }

  int64_t num_states() const { return static_cast<int64_t>(states_.size()); }
  int64_t memory_bytes() const;
  void clear();

  // Empty if lists, counts, links and the table agree; otherwise what is wrong. O(everything).
  std::string validate() const;

 private:
  struct State {
    int32_t length = 0;
    int32_t link = kNone;
    int32_t first = kNone;
    int32_t last = kNone;
    int32_t degree = 0;
    int32_t total = 0;
    int32_t min_end = 0;
  };
  static constexpr int32_t kListDegree = 8;  // larger states are found through the hash table

  void add_edge(int32_t state, int32_t token, int32_t target, int32_t count, int32_t last_use);
  void count(int32_t state, int32_t e);
  int32_t clone(int32_t parent, int32_t e);
  void count_chain(int32_t state, int32_t token);
  void index(int32_t state, int32_t e);
  size_t slot(int32_t state, int32_t token) const;
  void grow_table();

  std::vector<State> states_;
  std::vector<Edge> edges_;
  struct Entry {
    int32_t state = kNone;
    int32_t edge = kNone;
  };
  std::vector<Entry> table_;  // open addressing, power of two
  size_t num_indexed_ = 0;
  int32_t clock_ = 0;
};

}  // namespace keel::sched
