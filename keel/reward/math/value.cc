// Whole answers: numbers with units, tuples, intervals, sets, unions, matrices, relations, words.
#include "keel/reward/math/value.h"

#include <algorithm>
#include <cctype>

#include "keel/reward/math/expression.h"
#include "keel/reward/math/normalize.h"
#include "keel/reward/math/words.h"

namespace keel::math {
namespace {

constexpr size_t kMaxBytes = 4096;
constexpr int kMaxNesting = 8;

class ValueParser {
 public:
  ValueParser(std::string_view text, int point, bool plus) : p_(text, point, plus) {}

  // answer := item (',' item)*; more than one item is a set of solutions.
  Value answer() {
    auto first = item();
    if (p_.next_is(",")) first = list_from(std::move(first));
    if (!p_.at_end()) throw MathError("text after the answer");
    return first;
  }

  bool saw_plus_minus() const { return p_.saw_plus_minus(); }

 private:
  Value list_from(Value first) {
    Value set;
    set.kind = Kind::kSet;
    set.items.push_back(std::move(first));
    while (p_.take(",")) set.items.push_back(item());
    return set;
  }

  // item := part (\cup part)*
  Value item() {
    if (++nesting_ > kMaxNesting) throw MathError("nested too deeply");
    auto v = part();
    if (p_.next_is("\\cup")) {
      Value all;
      all.kind = Kind::kUnion;
      all.items.push_back(std::move(v));
      while (p_.take("\\cup")) all.items.push_back(part());
      v = std::move(all);
    }
    --nesting_;
    return v;
  }

  Value part() {
    if (p_.at_end()) throw MathError("nothing to read");
    if (p_.take("\\emptyset")) {
      Value empty;
      empty.kind = Kind::kSet;
      return empty;
    }
    if (p_.take("\\{")) return set();
    if (p_.next_is("\\begin")) return matrix();
    if (is_sequence()) return sequence();
    if (auto infinite = infinity()) return *infinite;
    return relation();
  }

  Value set() {
    Value v;
    v.kind = Kind::kSet;
    const bool was = p_.in_list();
    p_.set_in_list(true);
    while (!p_.take("\\}")) {
      if (!v.items.empty() && !p_.take(",")) throw MathError("set is not closed");
      v.items.push_back(item());
    }
    p_.set_in_list(was);
    return v;
  }

  // ( or [ whose matching bracket has a comma in front of it and ends the part.
  bool is_sequence() {
    p_.at_end();
    const auto s = p_.text();
    size_t i = p_.position();
    if (s[i] != '(' && s[i] != '[') return false;
    int depth = 0;
    bool comma = false;
    for (; i < s.size(); ++i) {
      const char c = s[i];
      if (c == '\\') {
        depth += i + 1 < s.size() ? (s[i + 1] == '{') - (s[i + 1] == '}') : 0;
        ++i;
        continue;
      }
      depth += (c == '(' || c == '[' || c == '{') - (c == ')' || c == ']' || c == '}');
      comma |= c == ',' && depth == 1;
      if (depth == 0) return comma;
    }
    return false;
  }

  Value sequence() {
    Value v;
    v.kind = Kind::kSequence;
    v.open = p_.take("(") ? '(' : '[';
    if (v.open == '[') p_.take("[");
    const bool was = p_.in_list();
    p_.set_in_list(true);
    do {
      v.items.push_back(item());
    } while (p_.take(","));
    p_.set_in_list(was);
    v.close = p_.take(")") ? ')' : ']';
    if (v.close == ']' && !p_.take("]")) throw MathError("bracket is not closed");
    return v;
  }

  std::optional<Value> infinity() {
    const size_t begin = p_.position();
    const bool negative = p_.take("-");
    if (!negative) p_.take("+");
    if (!p_.take("\\infty")) {
      p_.set_position(begin);
      return std::nullopt;
    }
    Value v;
    v.kind = Kind::kInfinity;
    v.number = Number(mpq_class(negative ? -1 : 1));
    return v;
  }

  // \begin{pmatrix} a & b \\ c & d \end{pmatrix}
  Value matrix() {
    p_.take("\\begin");
    const std::string name(p_.raw_group());
    if (name != "pmatrix" && name != "bmatrix" && name != "matrix" && name != "array")
      throw MathError("environment");
    if (name == "array" && p_.next_is("{")) p_.raw_group();
    Value v;
    v.kind = Kind::kMatrix;
    for (;;) {
      Value row;
      row.kind = Kind::kSequence;
      do {
        row.items.push_back(item());
      } while (p_.take("&"));
      v.items.push_back(std::move(row));
      const bool more = p_.take("\\\\");
      if (p_.take("\\end")) break;
      if (!more) throw MathError("expected a row end");
    }
    if (p_.raw_group() != name) throw MathError("another environment ends");
    return v;
  }

  Value scalar() {
    Value v;
    v.number = p_.sum();
    if (p_.take("\\%") || p_.take("%")) v.percent = true;
    if (p_.take("\\degree")) v.unit = "deg";
    if (auto unit = p_.unit(); !unit.empty()) {
      v.unit = canonical_unit(unit);
      if (p_.take("^")) {  // cm^2
        const bool group = p_.take("{");
        const bool two = p_.take("2");
        if (!two && !p_.take("3")) throw MathError("power of a unit");
        if (group && !p_.take("}")) throw MathError("expected }");
        v.unit.push_back(two ? '2' : '3');
      }
    }
    return v;
  }

  // One of = < > \le \ge, as '=' '<' '>' 'l' 'g'; 0 if none comes next.
  char comparison() {
    static constexpr std::pair<std::string_view, char> kTable[] = {
        {"=", '='},  {"\\le", 'l'}, {"\\ge", 'g'}, {"\\lt", '<'}, {"\\gt", '>'},
        {"<=", 'l'}, {">=", 'g'},   {"<", '<'},    {">", '>'}};
    for (const auto& [token, c] : kTable) {
      if (p_.take(token)) return c;
    }
    return 0;
  }

  Value relation() {
    const size_t begin = p_.position();
    const auto variable = p_.lone_variable();
    if (!variable.empty() && p_.take("\\in")) {
      auto v = item();
      v.variable = variable;
      return v;
    }
    p_.set_position(begin);
    auto left = scalar();
    const size_t at = p_.position();
    const char c = comparison();
    if (c == 0) return left;
    if (c == '=') return equation(std::move(left), variable);
    p_.set_position(at);
    return inequality(std::move(left), variable);
  }

  Value equation(Value left, const std::string& variable) {
    auto right = variable.empty() ? scalar() : item();
    Value v;
    if (!variable.empty()) v = right;
    v.kind = variable.empty() ? Kind::kEquation : right.kind;
    v.variable = variable;
    if (right.kind == Kind::kNumber) v.items = {std::move(left), std::move(right)};
    return v;
  }

  Value endpoint() {
    auto infinite = infinity();
    return infinite ? *infinite : scalar();
  }

  static Value infinite(long sign) {
    Value v;
    v.kind = Kind::kInfinity;
    v.number = Number(mpq_class(sign));
    return v;
  }

  // x > a, a < x, a < x <= b as intervals.
  Value inequality(Value left, std::string variable) {
    const char first = comparison();
    const bool less = first == '<' || first == 'l';
    Value v;
    v.kind = Kind::kSequence;
    if (!variable.empty()) {  // x < a
      auto bound = endpoint();
      const bool closed = first == 'l' || first == 'g';
      v.items =
          less ? std::vector<Value>{infinite(-1), bound} : std::vector<Value>{bound, infinite(1)};
      v.open = !less && closed ? '[' : '(';
      v.close = less && closed ? ']' : ')';
      v.variable = variable;
      return v;
    }
    variable = p_.lone_variable();
    if (variable.empty()) throw MathError("an inequality that is no interval");
    const char second = comparison();
    if (second == 0) {  // a < x
      v.items =
          less ? std::vector<Value>{left, infinite(1)} : std::vector<Value>{infinite(-1), left};
      v.open = first == 'l' ? '[' : '(';
      v.close = first == 'g' ? ']' : ')';
    } else {
      if (less != (second == '<' || second == 'l'))
        throw MathError("an inequality that is no interval");
      auto right = endpoint();
      const bool left_closed = first == 'l' || first == 'g',
                 right_closed = second == 'l' || second == 'g';
      v.items = less ? std::vector<Value>{left, right} : std::vector<Value>{right, left};
      v.open = (less ? left_closed : right_closed) ? '[' : '(';
      v.close = (less ? right_closed : left_closed) ? ']' : ')';
    }
    v.variable = variable;
    return v;
  }

  ExpressionParser p_;
  int nesting_ = 0;
};

// " \text{ and } ", " or " between solutions.
void replace_conjunctions(std::string& s) {
  for (const auto* word :
       {"\\text{ and }", "\\text{ or }", "\\text{and}", "\\text{or}", " and ", " or "}) {
    for (size_t p; (p = s.find(word)) != s.npos;)
      s.replace(p, std::string_view(word).size(), 1, ',');
  }
}

// "\text{The answer is } 5": words in front of the answer.
void drop_preamble(std::string& s) {
  if (!s.starts_with("\\text{")) return;
  const auto end = s.find('}');
  if (end == s.npos) return;
  const auto words = as_words(s.substr(0, end + 1));
  if (words.ends_with("answer is") || words.ends_with("answer")) s.erase(0, end + 1);
}

bool has_word(std::string_view text) {
  size_t run = 0;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    run = std::isalpha(u) != 0 || u >= 0x80 ? run + 1 : 0;
    if (run > 3) return true;
  }
  return text.find("\\text") != text.npos || text.find("\\mathrm") != text.npos;
}

}  // namespace

std::optional<Value> parse_value(std::string_view text, int point) {
  if (text.size() > kMaxBytes) return std::nullopt;
  try {
    const auto words = as_words(text);
    if (!words.empty() && has_word(text) && !is_function_name(words)) {
      Value v;
      v.kind = Kind::kText;
      v.text = words;
      return v;
    }
    if (words == "nan") return std::nullopt;
    auto s = normalize(text);
    replace_conjunctions(s);
    drop_preamble(s);
    while (!s.empty() && (s.back() == '.' || s.back() == ' ')) s.pop_back();
    if (s.empty()) return std::nullopt;
    ValueParser parser(s, point, true);
    auto value = parser.answer();
    if (!parser.saw_plus_minus()) return value;
    Value both;
    both.kind = Kind::kSet;
    both.items = {std::move(value), ValueParser(s, point, false).answer()};
    return both;
  } catch (const MathError&) {
    return std::nullopt;
  }
}

}  // namespace keel::math
