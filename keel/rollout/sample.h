// Sampling parameters, requests and the sample record: what training needs of a generated sequence.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace keel::rollout {

struct SamplingParams {
  float temperature = 1.0f;  // 0 = greedy
  int32_t top_k = 0;         // 0 = off
  float top_p = 1.0f;        // 1 = off
  float min_p = 0.0f;        // 0 = off
  int32_t max_new_tokens = 128;
  std::vector<int32_t> stop_ids;          // besides the engine's end-of-sequence ids
  std::vector<std::string> stop_strings;  // UTF-8; may span tokens
  bool ignore_eos = false;                // end-of-sequence ids do not stop; stop_ids still do
  uint64_t seed = 0;                      // members of a group need different seeds
};

struct Request {
  int64_t id = 0;      // unique among live requests
  int64_t group = -1;  // >= 0: members have equal prompts, which are computed once
  int32_t priority = 0;
  std::vector<int32_t> prompt_ids;
  SamplingParams params;
};

enum class StopReason : uint8_t { kEos, kStop, kLength, kAbort };
const char* to_string(StopReason reason);

// Answer tokens [begin, end) were sampled from weights `version`.
struct VersionSpan {
  int64_t version = 0;
  int32_t begin = 0;
  int32_t end = 0;
  bool operator==(const VersionSpan&) const = default;
};

// Ids are the record; text is never tokenised again. Arrays other than `ids` have one entry per
// answer token. A token that ended the sample (end of sequence, stop) is part of it.
struct Sample {
  int64_t id = 0;
  int64_t group = -1;
  std::vector<int32_t> ids;  // prompt, then answer
  int32_t num_prompt = 0;
  std::vector<float> log_probs;    // of the distribution sampled from
  std::vector<float> entropies;    // nats, same distribution
  std::vector<uint8_t> loss_mask;  // 1 = sampled by the model
  // Answer token i was drawn from kept_ids[kept_offsets[i], kept_offsets[i + 1]) (empty range: the
  // whole vocabulary). Both empty when nothing was cut.
  std::vector<int32_t> kept_ids;
  std::vector<int64_t> kept_offsets;
  std::vector<VersionSpan> versions;
  SamplingParams params;
  StopReason stop_reason = StopReason::kAbort;
  std::string numerics_id;

  std::span<const int32_t> answer() const { return std::span(ids).subspan(num_prompt); }
};

}  // namespace keel::rollout
