#include "keel/sched/suffix_automaton.h"

#include "keel/base/error.h"
#include "keel/base/rng.h"

namespace keel::sched {

SuffixAutomaton::SuffixAutomaton() { clear(); }

void SuffixAutomaton::clear() {
  states_.assign(1, State{});
  edges_.clear();
  table_.assign(64, Entry{});
  num_indexed_ = 0;
  clock_ = 0;
}

int64_t SuffixAutomaton::memory_bytes() const {
  return static_cast<int64_t>(states_.capacity() * sizeof(State) +
                              edges_.capacity() * sizeof(Edge) + table_.capacity() * sizeof(Entry));
}

size_t SuffixAutomaton::slot(int32_t state, int32_t token) const {
  const uint64_t key =
      static_cast<uint64_t>(static_cast<uint32_t>(state)) << 32 | static_cast<uint32_t>(token);
  return (key * 0x9E3779B97F4A7C15u >> 20) & (table_.size() - 1);
}

int32_t SuffixAutomaton::find(int32_t state, int32_t token) const {
  const auto& s = states_[state];
  if (s.degree <= kListDegree) {
    int32_t e = s.first;
    while (e != kNone && edges_[e].token != token) e = edges_[e].next;
    return e;
  }
  size_t i = slot(state, token);
  for (; table_[i].state != kNone; i = (i + 1) & (table_.size() - 1)) {
    if (table_[i].state == state && edges_[table_[i].edge].token == token) return table_[i].edge;
  }
  return kNone;
}

void SuffixAutomaton::index(int32_t state, int32_t e) {
  if (2 * (num_indexed_ + 1) > table_.size()) grow_table();
  size_t i = slot(state, edges_[e].token);
  while (table_[i].state != kNone) i = (i + 1) & (table_.size() - 1);
  table_[i] = {state, e};
  ++num_indexed_;
}

void SuffixAutomaton::grow_table() {
  auto old = std::move(table_);
  table_.assign(old.size() * 2, Entry{});
  num_indexed_ = 0;
  for (const auto& entry : old) {
    if (entry.state != kNone) index(entry.state, entry.edge);
  }
}

void SuffixAutomaton::add_edge(int32_t state, int32_t token, int32_t target, int32_t count,
                               int32_t last_use) {
  const auto e = static_cast<int32_t>(edges_.size());
  auto& s = states_[state];
  edges_.push_back({token, target, count, last_use, kNone, s.last});
  (s.last == kNone ? s.first : edges_[s.last].next) = e;
  s.last = e;
  s.total += count;
  ++s.degree;
  if (s.degree == kListDegree + 1) {
    for (int32_t x = s.first; x != kNone; x = edges_[x].next) index(state, x);
  } else if (s.degree > kListDegree) {
    index(state, e);
  }
}

// One more occurrence; the edge moves up at most a few places, which keeps the list nearly sorted
// at a bounded cost.
void SuffixAutomaton::count(int32_t state, int32_t e) {
  auto& s = states_[state];
  auto& edge = edges_[e];
  ++s.total;
  ++edge.count;
  edge.last_use = clock_;
  int32_t before = edge.prev;
  for (int hops = 0; hops < 4 && before != kNone && edges_[before].count <= edge.count; ++hops) {
    before = edges_[before].prev;
  }
  if (before == edge.prev) return;
  edges_[edge.prev].next = edge.next;
  (edge.next == kNone ? s.last : edges_[edge.next].prev) = edge.prev;
  edge.prev = before;
  auto& head = before == kNone ? s.first : edges_[before].next;
  edge.next = head;
  edges_[head].prev = e;
  head = e;
}

void SuffixAutomaton::count_chain(int32_t state, int32_t token) {
  for (; state != kNone; state = states_[state].link) count(state, find(state, token));
}

// Splits off the contexts of the edge's target that are as short as `parent`'s allow.
int32_t SuffixAutomaton::clone(int32_t parent, int32_t e) {
  const int32_t target = edges_[e].target;
  const int32_t token = edges_[e].token;
  const auto c = static_cast<int32_t>(states_.size());
  State copy = states_[target];
  copy.length = states_[parent].length + 1;
  copy.first = copy.last = kNone;
  copy.degree = copy.total = 0;
  states_.push_back(copy);
  for (int32_t x = states_[target].first; x != kNone; x = edges_[x].next) {
    const Edge from = edges_[x];
    add_edge(c, from.token, from.target, from.count, from.last_use);
  }
  states_[target].link = c;
  for (int32_t p = parent; p != kNone; p = states_[p].link) {
    const int32_t x = find(p, token);
    if (x == kNone || edges_[x].target != target) break;
    edges_[x].target = c;
  }
  return c;
}

int32_t SuffixAutomaton::extend(int32_t state, int32_t token, int32_t end) {
  KEEL_CHECK(token >= 0, "token {} in a suffix automaton", token);
  ++clock_;
  if (const int32_t e = find(state, token); e != kNone) {  // another text went this way
    int32_t to = edges_[e].target;
    if (states_[to].length != states_[state].length + 1) to = clone(state, e);
    count_chain(state, token);
    return to;
  }
  const auto fresh = static_cast<int32_t>(states_.size());
  states_.push_back({states_[state].length + 1, kRoot, kNone, kNone, 0, 0, end});
  int32_t p = state;
  int32_t e = kNone;
  for (; p != kNone && (e = find(p, token)) == kNone; p = states_[p].link) {
    add_edge(p, token, fresh, 1, clock_);
  }
  if (p == kNone) return fresh;
  const int32_t to = edges_[e].target;
  states_[fresh].link = states_[to].length == states_[p].length + 1 ? to : clone(p, e);
  count_chain(p, token);
  return fresh;
}

std::string SuffixAutomaton::validate() const {
  size_t listed = 0;
  for (size_t v = 0; v < states_.size(); ++v) {
    const auto& s = states_[v];
    const auto state = static_cast<int32_t>(v);
    if (v != kRoot && (s.link < 0 || states_[s.link].length >= s.length)) {
      return fmt::format("state {} is not longer than its link", v);
    }
    int32_t degree = 0;
    int64_t total = 0;
    int32_t prev = kNone;
    for (int32_t e = s.first; e != kNone; prev = e, e = edges_[e].next) {
      const auto& edge = edges_[e];
      ++degree;
      total += edge.count;
      if (edge.prev != prev) return fmt::format("list of state {} is broken", v);
      if (find(state, edge.token) != e) return fmt::format("state {} loses an edge", v);
      if (states_[edge.target].length <= s.length) return fmt::format("edge of {} goes back", v);
      if (v == kRoot) continue;
      const int32_t up = find(s.link, edge.token);
      if (up == kNone || edges_[up].count < edge.count) {
        return fmt::format("state {} counts more than its suffix", v);
      }
    }
    if (degree != s.degree || total != s.total || prev != s.last) {
      return fmt::format("state {} has {} edges and {} tokens, counted {} and {}", v, degree, total,
                         s.degree, s.total);
    }
    listed += degree;
  }
  if (listed != edges_.size()) return "an edge is in no list";
  return "";
}

}  // namespace keel::sched
