// Drafts the next tokens of a request from what it and its siblings have written so far.
//
// Texts of one group share an automaton; a group of one drafts from its own text only, and
// references (last epoch's answers to the same prompt) join as texts that do not grow. A draft is a
// small tree, most probable token first, so any prefix of it is a tree too: a caller with fewer
// rows to verify cuts it short. Verification keeps the output distribution, so nothing here can
// change what is generated. Not thread-safe; deterministic.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "keel/sched/draft_model.h"
#include "keel/sched/suffix_automaton.h"

namespace keel::sched {

struct DraftLimits {
  int32_t max_tokens = 8;        // of one draft
  bool tree = true;              // false: one path
  double min_probability = 0.1;  // of a path; see worthwhile_probability()
};

struct Draft {
  std::vector<int32_t> tokens;
  std::vector<int32_t> parents;      // index of the token before, -1 = the text's last token
  std::vector<float> probabilities;  // that everything up to the token is accepted; descending
};

// How long a verification step takes: fixed_us + row_us * rows of all running requests.
struct VerifyCost {
  double fixed_us = 1;
  double row_us = 0;
};

// A draft token pays if its chance of acceptance exceeds this: the time of one more row over the
// time that a token costs now. batch: running requests; tokens_per_step: measured, >= 1;
// rows_per_request: rows that each has verified in a step, >= 1.
double worthwhile_probability(const VerifyCost& cost, int32_t batch, double tokens_per_step,
                              double rows_per_request);

// Length of the longest path in `draft` that agrees with `truth`.
int32_t accepted_tokens(const Draft& draft, std::span<const int32_t> truth);

class DraftGroup {
 public:
  // max_tokens bounds what is remembered: beyond it the oldest half is forgotten, references and
  // finished texts first, and the automaton is built again (amortised O(1) for a token).
  // Throws Error(kInvalid) if max_tokens < 64.
  DraftGroup(DraftModel& model, int64_t max_tokens);

  // A text that grows; `prompt` may be empty. Equal prompts are counted once. Returns its index.
  int32_t add_text(std::span<const int32_t> prompt);
  // A finished answer to the same prompt (last epoch's, another instance's).
  void add_reference(std::span<const int32_t> prompt, std::span<const int32_t> answer);

  // The draft that follows text `text`; valid until the next call for this group.
  const Draft& draft(int32_t text, const DraftLimits& limits);

  // Verified tokens, in order. Teaches the model how the latest draft of this text did.
  void append(int32_t text, std::span<const int32_t> tokens);

  // If more than max_tokens are remembered, forgets half of them or more.
  void shrink(int64_t max_tokens);

  // No more drafts or tokens for it; what it wrote stays for the others.
  void finish(int32_t text);

  int64_t num_tokens() const { return num_tokens_; }
  int64_t memory_bytes() const;
  const SuffixAutomaton& automaton() const { return texts_; }

 private:
  struct Text {
    std::vector<int32_t> tokens;  // without the group's prompt
    int32_t state = SuffixAutomaton::kRoot;
    bool live = true;
    bool after_prompt = false;  // begins where the group's prompt ends
  };
  struct Node {
    int32_t parent;  // in the draft
    int32_t token;
    int32_t target;
    int32_t matched;
    float probability;
  };

  void grow(Text& text, std::span<const int32_t> tokens);
  int32_t last_token(const Text& text) const;
  void expand(int32_t parent, int32_t state, int32_t matched, int32_t last, float probability,
              const DraftLimits& limits);
  void bound_memory();
  void forget(int64_t goal);
  void rebuild();

  DraftModel& model_;
  int64_t max_tokens_;
  int64_t num_tokens_ = 0;
  SuffixAutomaton texts_;
  std::vector<Text> all_;
  std::vector<int32_t> prompt_;  // of the group
  int32_t prompt_state_ = SuffixAutomaton::kRoot;

  // The latest draft.
  int32_t drafted_text_ = -1;
  Draft draft_;
  std::vector<DraftContext> contexts_;  // [0] before the draft, [1 + i] after its token i
  std::vector<Node> open_;
};

}  // namespace keel::sched
