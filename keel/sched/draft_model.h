// How likely each continuation of a context is, from what followed its suffixes so far: logistic
// mixing of adaptive counts over context lengths, as in lossless compressors (Mahoney's PAQ),
// trained online on every verified token. Integers and floats only; not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "keel/sched/suffix_automaton.h"

namespace keel::sched {

inline constexpr int32_t kDraftCandidates = 4;  // one vector of floats
inline constexpr int32_t kDraftOrders = 9;  // context lengths 1-5, 6-7, 8-11, 12-19, 20 and more
inline constexpr int32_t kDraftInputs = 17;

// The candidates for the token after a context, with what is needed to learn from the true one.
struct DraftContext {
  template <class T>
  using PerCandidate = std::array<T, kDraftCandidates>;

  int32_t num_candidates = 0;
  PerCandidate<int32_t> tokens;
  PerCandidate<int32_t> targets;  // the context after the candidate,
  PerCandidate<int32_t> matched;  // of which so many tokens are known to match
  PerCandidate<float> probabilities;

  // For learning.
  int32_t weight_set = 0;
  int32_t num_orders = 0;
  uint32_t token_slot = 0;    // of the context's last token
  PerCandidate<float> mixed;  // probabilities before normalising
  std::array<PerCandidate<float>, kDraftInputs> inputs;
  std::array<PerCandidate<int16_t>, kDraftOrders> counts;  // entries of the count table
};

// What one engine has learned about drafting; shared by all its groups.
class DraftModel {
 public:
  DraftModel();

  // Fills `out` for the context `matched` tokens long in `state`, of which `last` is the last one.
  // No candidates where nothing ever followed the context's last token.
  void predict(const SuffixAutomaton& texts, int32_t state, int32_t matched, int32_t last,
               DraftContext& out) const;

  // The token after `context` was `token`.
  void learn(const DraftContext& context, int32_t token);

 private:
  static constexpr int32_t kCountClasses = 8;
  static constexpr int32_t kTotalClasses = 10;
  static constexpr int32_t kTokenSlots = 1 << 13;

  struct Rate {  // an adaptive probability with its log-odds
    float p = 0.5F;
    float odds = 0;
    int32_t seen = 0;

    void update(bool hit, const float* steps, int32_t window);
  };
  struct Levels;
  struct Seen;
  static Levels levels_of(const SuffixAutomaton& texts, int32_t state, int32_t matched);
  static void gather(const SuffixAutomaton& texts, const Levels& levels, Seen& seen,
                     DraftContext& out);
  void mix(DraftContext& out) const;

  std::vector<std::array<float, kDraftInputs>> weights_;
  std::vector<Rate> counts_;  // [order][count class][total class]
  std::vector<Rate> after_;   // [hash of last token] was the best candidate right?
  std::vector<Rate> tokens_;  // [hash of candidate] was it right?
};

}  // namespace keel::sched
