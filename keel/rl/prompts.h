// Rows of a data set as prompts in ids, ready for the engine. All checks happen here, before
// anything is sampled.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "keel/data/dataset.h"
#include "keel/rl/train_config.h"
#include "keel/tokenizer/tokenizer.h"

namespace keel::rl {

struct Prompt {
  std::vector<int32_t> ids;
  std::string text;  // as fed, for people and sample files
};

struct PromptSet {
  Dataset data;                 // rows without those dropped
  std::vector<Prompt> prompts;  // parallel to data.rows
};

// Renders a row: chat template with a generation prompt for conversations, plain encoding for text.
Prompt render_prompt(const Tokenizer& tokenizer, const Row& row, const std::string& system_prompt);

// Loads and renders. Throws Error with file:row findings, also for prompts above
// data.max_prompt_length unless data.truncation says what to do with them.
PromptSet load_prompts(const std::vector<std::string>& files, const DataSection& config,
                       uint64_t seed, const Tokenizer& tokenizer);

// Moves `fraction` of the rows (chosen by the seed alone, kept in order) out of `all` and returns
// them.
PromptSet hold_out(PromptSet& all, double fraction, uint64_t seed);

}  // namespace keel::rl
