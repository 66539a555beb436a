#include "keel/reward/rules.h"

#include "keel/base/config_suggest.h"
#include "keel/base/error.h"
#include "keel/reward/extract.h"
#include "keel/reward/math/value.h"
#include "keel/reward/rule_functions.h"

namespace keel {
namespace {

struct Rule {
  const char* name;
  double (*run)(std::string_view answer, std::string_view ground_truth, const RuleOptions&);
  bool needs_truth;
};

constexpr Rule kRules[] = {
    {"gsm8k_strict", rule::gsm8k_strict, true},
    {"gsm8k_flexible", rule::gsm8k_flexible, true},
    {"last_number", rule::last_number, true},
    {"math_boxed", rule::math_boxed, true},
    {"math_equiv", rule::math_equiv, true},
    {"dapo", rule::dapo, true},
    {"choice", rule::choice, true},
    {"exact_match", rule::exact_match, true},
    {"format", rule::format, false},
};

struct SourceRule {
  std::string_view prefix;
  const char* rule;
};

// data_source values that verl recipes use.
constexpr SourceRule kSources[] = {
    {"openai/gsm8k", "gsm8k_strict"},
    {"gsm8k", "gsm8k_strict"},
    {"lighteval/MATH", "math_boxed"},
    {"DigitalLearningGmbH/MATH-lighteval", "math_boxed"},
    {"HuggingFaceH4/MATH-500", "math_boxed"},
    {"numina", "math_boxed"},
    {"math_dapo", "dapo"},
    {"aime", "dapo"},
    {"math", "math_boxed"},
};

const Rule& find_rule(const std::string& name) {
  for (const auto& r : kRules) {
    if (name == r.name) return r;
  }
  const auto near = nearest_name(name, rule_names());
  throw_invalid("[reward] there is no rule '{}'{}; the rules are {}", name,
                near.empty() ? "" : "; did you mean '" + near + "'?",
                fmt::join(rule_names(), ", "));
}

}  // namespace

double score(const std::string& rule, std::string_view answer, std::string_view ground_truth,
             const RuleOptions& options) {
  const auto& r = find_rule(rule);
  if (r.needs_truth && trim(ground_truth).empty()) return 0;
  if (options.strip_think) answer = without_thinking(answer);
  return r.run(answer, ground_truth, options);
}

std::vector<std::string> rule_names() {
  std::vector<std::string> names;
  for (const auto& r : kRules) names.push_back(r.name);
  return names;
}

void require_rule(const std::string& rule) { find_rule(rule); }

std::string rule_for_data_source(std::string_view data_source) {
  for (const auto& s : kSources) {
    if (data_source.starts_with(s.prefix)) return s.rule;
  }
  return "";
}

Json parse_case(const std::string& line) {
  // A lone surrogate escape has no UTF-8 form.
  std::string repaired;
  const auto unit = [&](size_t i) -> int {  // code unit of a \uXXXX at i, or -1
    if (line.compare(i, 2, "\\u") != 0 || i + 6 > line.size()) return -1;
    int value = 0;
    for (size_t k = i + 2; k < i + 6; ++k) {
      if (!std::isxdigit(static_cast<unsigned char>(line[k]))) return -1;
      value = value * 16 + (std::isdigit(static_cast<unsigned char>(line[k]))
                                ? line[k] - '0'
                                : (line[k] | 0x20) - 'a' + 10);
    }
    return value;
  };
  const auto high = [](int u) { return u >= 0xD800 && u < 0xDC00; };
  const auto low = [](int u) { return u >= 0xDC00 && u < 0xE000; };
  for (size_t i = 0; i < line.size();) {
    const int u = line[i] == '\\' ? unit(i) : -1;
    size_t n = u >= 0 ? 6 : line[i] == '\\' ? 2 : 1;
    if (high(u) && low(unit(i + 6))) n = 12;
    if (n == 6 && (high(u) || low(u))) {
      repaired += "\\ufffd";
    } else {
      repaired.append(line, i, n);
    }
    i += n;
  }
  try {
    return Json::parse(repaired);
  } catch (const Json::exception& e) {
    throw_invalid("[score] expected a line of JSON: {}", e.what());
  }
}

Json run_score_case(const std::string& rule, const Json& row) {
  KEEL_REQUIRE(row.is_object() && row.contains("answer") && row["answer"].is_string(),
               "[score] expected {{\"answer\", \"ground_truth\"}} with strings");
  const auto truth = row.find("ground_truth");
  const bool has_truth = truth != row.end() && !truth->is_null();
  RuleOptions options;
  options.strip_think = row.value("strip_think", false) || row.value("opt", "") == "strip_think";
  options.pattern = row.value("pattern", "");
  const auto text = !has_truth           ? ""
                    : truth->is_string() ? truth->get<std::string>()
                                         : truth->dump();
  return {{"score", score(rule, row["answer"].get_ref<const std::string&>(), text, options)}};
}

namespace rule {

double math_boxed(std::string_view answer, std::string_view ground_truth, const RuleOptions&) {
  const auto box = last_boxed(answer);
  return box && math::same_value(*box, ground_truth) ? 1 : 0;
}

double math_equiv(std::string_view answer, std::string_view ground_truth, const RuleOptions&) {
  if (answer.find("\\boxed") != answer.npos) return math_boxed(answer, ground_truth, {});
  const auto last = last_math(answer);
  return last && math::same_value(*last, ground_truth) ? 1 : 0;
}

double exact_match(std::string_view answer, std::string_view ground_truth, const RuleOptions&) {
  return trim(answer) == trim(ground_truth) ? 1 : 0;
}

}  // namespace rule
}  // namespace keel
