// Rules on words: DAPO's normalised text, multiple choice, format.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "keel/base/error.h"
#include "keel/reward/ascii.h"
#include "keel/reward/extract.h"
#include "keel/reward/rule_functions.h"

namespace keel::rule {
namespace {

using ascii::is_digit;
using ascii::is_letter;

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

std::string lower(std::string_view s) {
  std::string out(s);
  std::transform(out.begin(), out.end(), out.begin(), [](char c) { return lower(c); });
  return out;
}

// What follows the last "answer", spaces, ':' (any case).
std::optional<std::string_view> after_answer_colon(std::string_view text) {
  const auto small = lower(text);
  for (size_t at = small.rfind("answer"); at != small.npos;
       at = at == 0 ? small.npos : small.rfind("answer", at - 1)) {
    size_t i = at + 6;
    while (i < text.size() && std::isspace(static_cast<unsigned char>(text[i]))) ++i;
    if (i < text.size() && text[i] == ':') return text.substr(i + 1);
  }
  return std::nullopt;
}

void remove_all(std::string& s, std::string_view part) {
  for (size_t p = s.find(part); p != s.npos; p = s.find(part, p)) s.erase(p, part.size());
}

// \cmd{x} -> x
void unwrap(std::string& s, std::string_view command) {
  const std::string open = std::string(command) + "{";
  for (size_t p = s.find(open); p != s.npos; p = s.find(open, p)) {
    s.erase(p, open.size());
    int depth = 1;
    size_t end = p;
    while (end < s.size()) {
      depth += (s[end] == '{') - (s[end] == '}');
      if (depth == 0) break;
      ++end;
    }
    if (end < s.size()) s.erase(end, 1);
  }
}

// \frac85 -> \frac{8}{5}, \sqrt3 -> \sqrt{3}
std::string brace_arguments(std::string_view s) {
  std::string out;
  for (size_t i = 0; i < s.size();) {
    const bool frac = s.substr(i).starts_with("\\frac"), root = s.substr(i).starts_with("\\sqrt");
    if (!frac && !root) {
      out += s[i++];
      continue;
    }
    out += s.substr(i, 5);
    i += 5;
    for (int k = frac ? 2 : 1;
         k > 0 && i < s.size() && std::isalnum(static_cast<unsigned char>(s[i])); --k) {
      out += std::string("{") + s[i++] + "}";
    }
  }
  return out;
}

// Final answers as the Minerva and DAPO recipes write them: no spaces, units, text commands.
std::string normalize_final(std::string_view answer) {
  static constexpr const char* kUnits[] = {
      "square", "units",    "integers", "dollars",   "cents",   "percent", "degrees",
      "inches", "feet",     "meters",   "miles",     "mph",     "km",      "cm",
      "gm",     "pounds",   "hours",    "minutes",   "seconds", "points",  "digits",
      "edges",  "students", "meals",    "multiples", "ways"};
  if (const auto equals = answer.rfind('='); equals != answer.npos)
    answer.remove_prefix(equals + 1);
  std::string s(trim(answer));
  while (s.starts_with('*') || s.starts_with(' ')) s.erase(0, 1);
  while (s.ends_with('*') || s.ends_with('.') || s.ends_with(' ')) s.pop_back();
  for (const auto* command : {"\\boxed", "\\text", "\\textbf", "\\mbox", "\\mathrm", "\\overline"})
    unwrap(s, command);
  for (const auto* part : {"\\$", "$", "\\!", "\\,", "\\;", "\\ ", "{,}", "^\\circ", "^{\\circ}",
                           "\\left", "\\right", "\\%", "%", "\""}) {
    remove_all(s, part);
  }
  for (const auto* unit : kUnits) remove_all(s, unit);
  std::erase_if(s, [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; });
  s = brace_arguments(s);
  const bool grouped =
      std::all_of(s.begin(), s.end(), [](char c) { return is_digit(c) || c == ',' || c == '-'; });
  if (grouped) std::erase(s, ',');
  return s;
}

// The letter of a box or statement that says just one, A to D; 0 if none or several.
char only_letter(std::string_view s, bool bare_lower_counts) {
  std::set<char> letters;
  for (size_t i = 0; i < s.size(); ++i) {
    const bool alone = is_letter(s[i]) &&
                       (i == 0 || !std::isalnum(static_cast<unsigned char>(s[i - 1]))) &&
                       (i + 1 == s.size() || !std::isalnum(static_cast<unsigned char>(s[i + 1])));
    if (!alone) continue;
    const bool bracketed = i > 0 && s[i - 1] == '(' && i + 1 < s.size() && s[i + 1] == ')';
    const char c = bracketed || bare_lower_counts
                       ? static_cast<char>(std::toupper(static_cast<unsigned char>(s[i])))
                       : s[i];
    if (c >= 'A' && c <= 'Z') letters.insert(c);
  }
  return letters.size() == 1 && *letters.begin() <= 'D' ? *letters.begin() : '\0';
}

// The clause that follows the last "answer is" or "answer:"; nullopt if there is none.
std::optional<std::string_view> answer_clause(std::string_view text) {
  const auto small = lower(text);
  size_t begin = text.npos;
  for (const auto* phrase :
       {"answer is", "answer:", "answer :", "answer should be", "choice is", "option is"}) {
    const size_t p = small.rfind(phrase);
    if (p != small.npos)
      begin = begin == text.npos ? p + std::string_view(phrase).size()
                                 : std::max(begin, p + std::string_view(phrase).size());
  }
  if (begin == text.npos) return std::nullopt;
  auto clause = trim(text.substr(begin));
  clause = clause.substr(0, clause.find('\n'));
  return clause.substr(0, clause.find(". "));
}

bool negated(std::string_view clause) {
  const auto small = lower(clause);
  return small.starts_with("not ") || small.find(" not ") != small.npos ||
         small.find("n't") != small.npos;
}

// "C", "C. Because ...", "(C) ...": the letter that the text begins with.
char leading_letter(std::string_view text) {
  text = trim(text);
  const bool bracket = text.starts_with('(');
  if (bracket) text.remove_prefix(1);
  if (text.empty() || text[0] < 'A' || text[0] > 'D') return 0;
  if (text.size() == 1) return text[0];
  const char next = text[1];
  if (bracket) return next == ')' ? text[0] : '\0';
  return next == '.' || next == ')' || next == ':' || next == '\n' ? text[0] : '\0';
}

char stated_choice(std::string_view answer) {
  if (answer.find("\\boxed") != answer.npos) {
    const auto box = last_boxed(answer);
    if (!box) return 0;
    std::string content(*box);
    for (const auto* command : {"\\text", "\\textbf", "\\mathrm", "\\mathbf"})
      unwrap(content, command);
    return only_letter(content, true);
  }
  if (const auto clause = answer_clause(answer))
    return negated(*clause) ? '\0' : only_letter(*clause, false);
  return leading_letter(answer);
}

// Compiled patterns; a run uses one or two.
class Patterns {
 public:
  bool full_match(const std::string& pattern, std::string_view text) {
    const std::lock_guard lock(mu_);
    auto& code = compiled_[pattern];
    if (!code) code.reset(compile(pattern));
    const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> match(
        pcre2_match_data_create_from_pattern(code.get(), nullptr), pcre2_match_data_free);
    const std::unique_ptr<pcre2_match_context, void (*)(pcre2_match_context*)> limits(
        pcre2_match_context_create(nullptr), pcre2_match_context_free);
    pcre2_set_match_limit(limits.get(), 1000000);  // a runaway pattern is no match
    return pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0,
                       match.get(), limits.get()) > 0;
  }

 private:
  struct Free {
    void operator()(pcre2_code* c) const { pcre2_code_free(c); }
  };

  static pcre2_code* compile(const std::string& pattern) {
    int error = 0;
    size_t offset = 0;
    auto* code =
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                      PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_DOTALL, &error, &offset, nullptr);
    if (code) return code;
    PCRE2_UCHAR text[200];
    pcre2_get_error_message(error, text, sizeof text);
    throw_invalid("[reward.format] the pattern '{}' is broken at {}: {}", pattern, offset,
                  reinterpret_cast<char*>(text));
  }

  std::mutex mu_;
  std::map<std::string, std::unique_ptr<pcre2_code, Free>> compiled_;
};

size_t count(std::string_view s, std::string_view part) {
  size_t n = 0;
  for (size_t p = s.find(part); p != s.npos; p = s.find(part, p + part.size())) ++n;
  return n;
}

}  // namespace

double dapo(std::string_view answer, std::string_view ground_truth, const RuleOptions&) {
  constexpr size_t kTail = 300, kBoxTail = 100;
  const auto tail = last_characters(answer, kTail);
  std::string_view found;
  if (const auto after = after_answer_colon(tail)) {
    found = trim(*after);
    found = found.substr(0, found.find('\n'));
  } else if (const auto box = last_boxed(last_characters(tail, kBoxTail))) {
    found = *box;
  }
  const auto text = normalize_final(found);
  return !text.empty() && text == normalize_final(ground_truth) ? 1 : 0;
}

double choice(std::string_view answer, std::string_view ground_truth, const RuleOptions&) {
  const char letter = stated_choice(answer);
  const char truth = only_letter(ground_truth, true);
  return letter != 0 && letter == truth ? 1 : 0;
}

double format(std::string_view answer, std::string_view, const RuleOptions& options) {
  if (!options.pattern.empty()) {
    static Patterns patterns;
    return patterns.full_match(options.pattern, answer) ? 1 : 0;
  }
  // one thinking part, first, and then an answer; templates may have opened it already
  const size_t close = answer.find("</think>");
  if (close == answer.npos || count(answer, "</think>") != 1 || count(answer, "<think>") > 1)
    return 0;
  const bool opened = count(answer, "<think>") == 1;
  if (opened && !trim(answer).starts_with("<think>")) return 0;
  return trim(answer.substr(close + 8)).empty() ? 0 : 1;
}

}  // namespace keel::rule
