#include "keel/sched/draft_model.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "keel/sched/draft_prior.h"

namespace keel::sched {
namespace {

// Longest context of each order class; a class stands for its longest context that occurred.
constexpr std::array<int32_t, kDraftOrders> kLongest = {1, 2, 3, 4, 5, 7, 11, 19, INT32_MAX};
constexpr std::array<float, 8> kCountOfClass = {0, 1, 2, 3, 4.5F, 7, 14, 30};
constexpr std::array<float, 10> kTotalOfClass = {0, 1, 2, 3, 4, 6, 10, 15, 28, 60};
// Places in the inputs: bias, one for each order, then these.
constexpr int32_t kLatest = 10, kLatestShorter = 11, kUnseen = 12, kLogCount = 13, kLogTotal = 14;
constexpr int32_t kAfter = 15, kToken = 16;

constexpr float kLearningRate = 0.01F;
constexpr int32_t kLogs = 4096;

int32_t count_class(int32_t c) { return c < 4 ? c : c < 6 ? 4 : c < 10 ? 5 : c < 20 ? 6 : 7; }
int32_t total_class(int32_t t) {
  return t < 5 ? t : t < 8 ? 5 : t < 12 ? 6 : t < 20 ? 7 : t < 40 ? 8 : 9;
}
uint32_t token_slot(int32_t token, int32_t slots) {
  return (static_cast<uint32_t>(token) * 2654435761U >> 16) & static_cast<uint32_t>(slots - 1);
}

// Steps of a running mean that starts as if `weight` cases had been seen.
template <int kCases>
std::array<float, kCases + 1> mean_steps(float weight) {
  std::array<float, kCases + 1> steps;
  for (int i = 0; i <= kCases; ++i) steps[i] = 1 / (static_cast<float>(i) + weight);
  return steps;
}

constexpr int32_t kCountWindow = 98, kTokenWindow = 47;

struct Tables {
  std::array<float, kLogs + 1> odds;  // ln(p / (1 - p)), clamped to +-5.3
  std::array<float, 64> log1p;
  std::array<float, kCountWindow + 1> count_steps = mean_steps<kCountWindow>(1.5F);
  std::array<float, kTokenWindow + 1> token_steps = mean_steps<kTokenWindow>(3);
  Tables() {
    for (int32_t i = 0; i <= kLogs; ++i) {
      const double p = std::clamp(static_cast<double>(i) / kLogs, 0.005, 0.995);
      odds[i] = static_cast<float>(std::log(p / (1 - p)));
    }
    for (size_t i = 0; i < log1p.size(); ++i) log1p[i] = std::log1p(static_cast<float>(i));
  }
};
const Tables kTables;

float odds_of(float p) { return kTables.odds[static_cast<int32_t>(p * kLogs + 0.5F)]; }
float log1p_of(int32_t n) { return kTables.log1p[std::min(n, 63)]; }

int32_t order_of(int32_t matched) {
  int32_t order = 0;
  while (kLongest[order] < matched) ++order;
  return order;
}

}  // namespace

// The classes of the context and of those suffixes that stand for an order, longest first.
struct DraftModel::Levels {
  int32_t num = 0;
  int32_t matched = 0;  // tokens of the longest
  int32_t order = 0;    // of the longest
  std::array<int32_t, kDraftOrders> state;
  std::array<int32_t, kDraftOrders> of_order;  // index into state
};

struct DraftModel::Seen {
  std::array<std::array<int32_t, kDraftCandidates>, kDraftOrders> counts{};  // [level][candidate]
  std::array<std::array<int32_t, kDraftCandidates>, kDraftOrders> last_use{};
  std::array<int32_t, kDraftOrders> latest;  // [level] candidate that was used last, or -1
};

DraftModel::DraftModel()
    : weights_(kDraftWeights.begin(), kDraftWeights.end()),
      counts_(kDraftOrders * kCountClasses * kTotalClasses),
      after_(kTokenSlots),
      tokens_(kTokenSlots) {
  for (size_t i = 0; i < counts_.size(); ++i) {
    const float count = kCountOfClass[i / kTotalClasses % kCountClasses];
    const float total = std::max(kTotalOfClass[i % kTotalClasses], count);
    counts_[i].p = (count + 0.02F) / (total + 0.8F);
    counts_[i].odds = odds_of(counts_[i].p);
  }
}

DraftModel::Levels DraftModel::levels_of(const SuffixAutomaton& texts, int32_t state,
                                         int32_t matched) {
  Levels levels;
  levels.matched = matched;
  levels.order = order_of(matched);
  int32_t above = texts.length(texts.link(state));
  for (int32_t order = levels.order; order >= 0; --order) {
    const int32_t wanted = std::min(kLongest[order], matched);
    bool same = levels.num > 0;
    while (above >= wanted) {
      state = texts.link(state);
      above = texts.length(texts.link(state));
      same = false;
    }
    if (!same) levels.state[levels.num++] = state;
    levels.of_order[order] = levels.num - 1;
  }
  return levels;
}

// Candidates come from the longest context first; for each, how often it followed every level.
void DraftModel::gather(const SuffixAutomaton& texts, const Levels& levels, Seen& seen,
                        DraftContext& out) {
  constexpr int32_t kSteps = 8;
  for (int32_t l = 0; l < levels.num; ++l) {
    const int32_t s = levels.state[l];
    const int32_t known = out.num_candidates;
    int32_t e = texts.first_edge(s);
    for (int32_t steps = 0; e != SuffixAutomaton::kNone && steps < kSteps; ++steps) {
      const auto& edge = texts.edge(e);
      int32_t c = 0;
      while (c < out.num_candidates && out.tokens[c] != edge.token) ++c;
      e = edge.next;
      if (c == kDraftCandidates) continue;
      if (c == out.num_candidates) {
        ++out.num_candidates;
        out.tokens[c] = edge.token;
        out.targets[c] = edge.target;
        out.matched[c] = std::min(levels.matched, texts.length(s)) + 1;
      }
      seen.counts[l][c] = edge.count;
      seen.last_use[l][c] = edge.last_use;
    }
    if (e != SuffixAutomaton::kNone) {
      for (int32_t c = 0; c < known; ++c) {
        if (seen.counts[l][c] > 0) continue;
        const int32_t found = texts.find(s, out.tokens[c]);
        if (found == SuffixAutomaton::kNone) continue;
        seen.counts[l][c] = texts.edge(found).count;
        seen.last_use[l][c] = texts.edge(found).last_use;
      }
    }
    seen.latest[l] = -1;
    for (int32_t c = 0, use = 0; c < out.num_candidates; ++c) {
      if (seen.last_use[l][c] <= use) continue;
      use = seen.last_use[l][c];
      seen.latest[l] = c;
    }
  }
}

void DraftModel::predict(const SuffixAutomaton& texts, int32_t state, int32_t matched, int32_t last,
                         DraftContext& out) const {
  out.num_candidates = 0;
  while (state > SuffixAutomaton::kRoot && texts.total(state) == 0) {
    state = texts.link(state);
    matched = std::min(matched, texts.length(state));
  }
  if (state <= SuffixAutomaton::kRoot || matched == 0) return;
  const auto levels = levels_of(texts, state, matched);
  Seen seen;
  gather(texts, levels, seen, out);

  const int32_t order = levels.order;
  out.num_orders = order + 1;
  out.weight_set = order * 3 + std::min(texts.degree(state), 3) - 1;
  out.token_slot = token_slot(last, kTokenSlots);
  for (int32_t o = 0; o <= order; ++o) {
    const int32_t l = levels.of_order[o];
    const int32_t total = total_class(texts.total(levels.state[l]));
    for (int32_t c = 0; c < kDraftCandidates; ++c) {
      const int32_t at =
          (o * kCountClasses + count_class(seen.counts[l][c])) * kTotalClasses + total;
      out.counts[o][c] = static_cast<int16_t>(at);
      out.inputs[1 + o][c] = counts_[at].odds;
    }
  }
  for (int32_t o = order + 1; o < kDraftOrders; ++o) out.inputs[1 + o].fill(0);
  // Longer matches may be by chance: what came latest after half the context matters too.
  const int32_t half = levels.of_order[order_of(std::max(1, matched / 2))];
  out.inputs[0].fill(1);
  out.inputs[kLogTotal].fill(log1p_of(texts.total(state)));
  out.inputs[kAfter].fill(after_[out.token_slot].odds);
  for (int32_t c = 0; c < kDraftCandidates; ++c) {
    out.inputs[kLatest][c] = c == seen.latest[0];
    out.inputs[kLatestShorter][c] = c == seen.latest[half];
    out.inputs[kUnseen][c] = seen.counts[0][c] == 0;
    out.inputs[kLogCount][c] = log1p_of(seen.counts[0][c]);
    out.inputs[kToken][c] =
        c < out.num_candidates ? tokens_[token_slot(out.tokens[c], kTokenSlots)].odds : 0;
  }
  mix(out);
}

void DraftModel::mix(DraftContext& out) const {
  const auto& weights = weights_[out.weight_set];
  DraftContext::PerCandidate<float> z{};
  for (int32_t i = 0; i < kDraftInputs; ++i) {
    for (int32_t c = 0; c < kDraftCandidates; ++c) z[c] += weights[i] * out.inputs[i][c];
  }
  float sum = 0;
  for (int32_t c = 0; c < out.num_candidates; ++c) {
    out.mixed[c] = 1 / (1 + std::exp(-z[c]));
    sum += out.mixed[c];
  }
  const float scale = sum > 1 ? 1 / sum : 1;
  for (int32_t c = 0; c < out.num_candidates; ++c) out.probabilities[c] = out.mixed[c] * scale;
}

void DraftModel::Rate::update(bool hit, const float* steps, int32_t window) {
  if (seen < window) ++seen;
  p += (static_cast<float>(hit) - p) * steps[seen];
  odds = odds_of(p);
}

void DraftModel::learn(const DraftContext& context, int32_t token) {
  const int32_t n = context.num_candidates;
  if (n == 0) return;
  DraftContext::PerCandidate<float> steps{};
  int32_t best = 0;
  for (int32_t c = 0; c < n; ++c) {
    const bool hit = context.tokens[c] == token;
    if (context.mixed[c] > context.mixed[best]) best = c;
    steps[c] = kLearningRate * (static_cast<float>(hit) - context.mixed[c]);
    for (int32_t o = 0; o < context.num_orders; ++o) {
      counts_[context.counts[o][c]].update(hit, kTables.count_steps.data(), kCountWindow);
    }
    tokens_[token_slot(context.tokens[c], kTokenSlots)].update(hit, kTables.token_steps.data(),
                                                               kTokenWindow);
  }
  auto& weights = weights_[context.weight_set];
  for (int32_t i = 0; i < kDraftInputs; ++i) {
    float sum = 0;
    for (int32_t c = 0; c < kDraftCandidates; ++c) sum += steps[c] * context.inputs[i][c];
    weights[i] += sum;
  }
  after_[context.token_slot].update(context.tokens[best] == token, kTables.token_steps.data(),
                                    kTokenWindow);
}

}  // namespace keel::sched
