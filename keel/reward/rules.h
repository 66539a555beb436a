// Rewards by rule: the answer's text against the ground truth. Pure, bounded time, and nothing in
// the text is ever executed. An empty ground truth never scores.
//
// gsm8k_strict    last "#### n" in the last 300 characters
// gsm8k_flexible  last number in the text
// last_number     the same, but a minus after a digit is no sign and commas only group thousands
// math_boxed      last \boxed{}, equal in value
// math_equiv      last \boxed{}, else last $...$, equal in value
// dapo            text after the last "Answer:" in the last 300 characters, as normalised text
// choice          one letter A-D, stated last; hedging scores 0
// exact_match     the same text, white space at the ends aside
// format          <think>...</think> and then an answer, or options.pattern; no ground truth needed
//
// Where the published rules differ from their own purpose (4179. is not 4179) the purpose is
// served.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "keel/base/json.h"

namespace keel {

struct RuleOptions {
  bool strip_think = false;  // judge only what follows </think>
  std::string pattern;       // format: regular expression (PCRE2) that the whole text must match
};

// 0 or 1. Throws keel::Error for an unknown rule or a broken pattern.
double score(const std::string& rule, std::string_view answer, std::string_view ground_truth,
             const RuleOptions& options = {});

std::vector<std::string> rule_names();

// Throws keel::Error, with the nearest name, if there is no such rule.
void require_rule(const std::string& rule);

// The rule that fits a verl data_source ("openai/gsm8k" -> "gsm8k_strict"), or "" if none is known.
std::string rule_for_data_source(std::string_view data_source);

// One line of a case file as JSON; lone surrogates, which other writers escape, become U+FFFD.
Json parse_case(const std::string& line);

// {"answer", "ground_truth", optional "strip_think", "pattern"} -> {"score"}.
Json run_score_case(const std::string& rule, const Json& row);

}  // namespace keel
