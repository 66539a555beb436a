// The rules behind the table in rules.cc.
#pragma once

#include "keel/reward/rules.h"

namespace keel::rule {

double gsm8k_strict(std::string_view answer, std::string_view ground_truth, const RuleOptions&);
double gsm8k_flexible(std::string_view answer, std::string_view ground_truth, const RuleOptions&);
double last_number(std::string_view answer, std::string_view ground_truth, const RuleOptions&);
double math_boxed(std::string_view answer, std::string_view ground_truth, const RuleOptions&);
double math_equiv(std::string_view answer, std::string_view ground_truth, const RuleOptions&);
double dapo(std::string_view answer, std::string_view ground_truth, const RuleOptions&);
double choice(std::string_view answer, std::string_view ground_truth, const RuleOptions&);
double exact_match(std::string_view answer, std::string_view ground_truth, const RuleOptions&);
double format(std::string_view answer, std::string_view ground_truth, const RuleOptions&);

}  // namespace keel::rule
