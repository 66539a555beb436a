// The template language against Jinja 3.1.6 with transformers' settings (cases.jsonl: first row the
// variables, then templates with what they give; null where Jinja raises), and its limits.
#include <gtest/gtest.h>

#include "keel/base/error.h"
#include "keel/tokenizer/chat_template.h"
#include "keel/tokenizer/test_util.h"

namespace keel {
namespace {

std::string render(const std::string& source, const OrderedJson& variables) {
  return ChatTemplate(source).render(variables);
}

std::vector<OrderedJson> cases() {
  return test::read_jsonl(std::string(KEEL_SOURCE_DIR) + "/keel/tokenizer/jinja/cases.jsonl");
}

TEST(Jinja, EqualsReference) {
  const auto rows = cases();
  const OrderedJson& variables = rows[0]["variables"];
  for (size_t i = 1; i < rows.size(); ++i) {
    const auto source = rows[i]["template"].get<std::string>();
    if (rows[i]["expected"].is_null()) {
      EXPECT_THROW(render(source, variables), Error) << source;
      continue;
    }
    try {
      EXPECT_EQ(render(source, variables), rows[i]["expected"].get<std::string>()) << source;
    } catch (const Error& e) {
      ADD_FAILURE() << source << "\n" << e.what();
    }
  }
  EXPECT_GT(rows.size(), 150u);
}

std::string error_of(const std::string& source,
                     const OrderedJson& variables = OrderedJson::object()) {
  try {
    return "no error: " + render(source, variables).substr(0, 100);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInvalid);
    return e.what();
  }
}

TEST(Jinja, ErrorsNameTheLine) {
  EXPECT_EQ(error_of("a\n{{ raise_exception('stop here') }}"),
            "[chat template:2] the template says: stop here");
  EXPECT_EQ(error_of("\n\n{{ missing.field }}"), "[chat template:3] 'missing' is undefined");
  EXPECT_NE(error_of("\n{% include 'x' %}").find("[chat template:2]"), std::string::npos);
  EXPECT_NE(error_of("{{ x | nope }}").find("nope"), std::string::npos);
}

TEST(Jinja, RecursionAndNestingEndInErrors) {
  EXPECT_THROW(render("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", {{"a", 1}}), Error);
  EXPECT_THROW(render("{% macro m(x) %}{{ [x] | map('upper') | join ~ m(x) }}{% endmacro %}"
                      "{{ m('a') }}",
                      {{"a", 1}}),
               Error);
  const auto times = [](const std::string& s, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += s;
    return out;
  };
  for (const std::string open :
       {"(", "[", "{1:", "-", "not ", "a[", "a(", "a|d(", "1 if 1 else "}) {
    EXPECT_THROW(render("{{ " + times(open, 20'000), {{"a", 1}}), Error) << open;
  }
  for (const std::string chain : {"~a", "+a", ".a", "|d", "[0]", " or a", "()"}) {
    EXPECT_THROW(render("{{ a" + times(chain, 20'000) + " }}", {{"a", 1}}), Error) << chain;
  }
  for (const std::string block : {"{% if a %}", "{% for i in a %}", "{% set x %}"}) {
    EXPECT_THROW(render(times(block, 20'000), {{"a", 1}}), Error) << block;
  }
  // Values that grow inwards, and cycles through namespaces.
  EXPECT_THROW(render("{% set n = namespace(x=[]) %}{% for i in range(1000) %}"
                      "{% set n.x = [n.x] %}{% endfor %}",
                      {{"a", 1}}),
               Error);
  EXPECT_EQ(render("{% set n = namespace() %}{% set n.n = n %}{{ n.n.n == n }}", {{"a", 1}}),
            "True");
  OrderedJson deep = 1;
  for (int i = 0; i < 1000; ++i) deep = OrderedJson::array({std::move(deep)});
  EXPECT_THROW(render("x", {{"a", std::move(deep)}}), Error);
}

TEST(Jinja, RunawayTemplatesEndInErrors) {
  const auto bounded = [](const std::string& source, const OrderedJson& variables) {
    return ChatTemplate(source, "test", {300'000, 4 << 20}).render(variables);
  };
  const std::string loop = "{% for i in range(100000) %}";
  EXPECT_THROW(bounded(loop + loop + "{% endfor %}{% endfor %}", {{"a", 1}}), Error);
  EXPECT_THROW(bounded("{% set n = namespace(s='xxxxxxxx') %}" + loop +
                           "{% set n.s = n.s ~ n.s %}{% endfor %}",
                       {{"a", 1}}),
               Error);
  EXPECT_THROW(bounded("{{ 'x' * 10 ** 12 }}", {{"a", 1}}), Error);
  EXPECT_THROW(bounded("{{ [1] * 10 ** 12 }}", {{"a", 1}}), Error);
  EXPECT_THROW(bounded("{% set n = namespace(x=[1]) %}{% for i in range(150) %}"
                       "{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
                       {{"a", 1}}),
               Error);
  EXPECT_THROW(bounded("{{ 9223372036854775807 + 1 }}", {{"a", 1}}), Error);
}

TEST(Jinja, StrftimeNow) {
  const std::string year = render("{{ strftime_now('%Y') }}", {{"a", 1}});
  ASSERT_EQ(year.size(), 4u);
  EXPECT_GE(year, "2024");
}

// Mutated templates give text or an Error, never anything else.
TEST(Jinja, MutatedTemplatesNeverCrash) {
  const auto rows = cases();
  std::mt19937 rng(7);
  static const std::vector<std::string> kPieces = {
      "{{",   "}}",     "{%",   "%}", "-",  "'",     "(", ")", "[",  "]",    "|", ".", "~",
      " if ", " else ", " is ", "{#", "#}", " not ", ":", ",", "\n", "\xFF", "x", "0", "*"};
  int good = 0;
  for (int i = 0; i < 6000; ++i) {
    std::string source = rows[1 + rng() % (rows.size() - 1)]["template"].get<std::string>();
    for (size_t n = 1 + rng() % 3; n > 0 && !source.empty(); --n) {
      const size_t at = rng() % source.size();
      switch (rng() % 3) {
        case 0:
          source.erase(at, 1 + rng() % 4);
          break;
        case 1:
          source.insert(at, kPieces[rng() % kPieces.size()]);
          break;
        default:
          source[at] = static_cast<char>(rng());
          break;
      }
    }
    if (source.find("**") != std::string::npos) continue;  // may run on until its budget is spent
    try {
      EXPECT_TRUE(unicode::is_valid(render(source, rows[0]["variables"])));
      ++good;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(good, 500);
}

}  // namespace
}  // namespace keel
