#include "keel/base/config.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "keel/base/config_suggest.h"
#include "keel/base/rng.h"

namespace keel {
namespace {

enum class Mode { kFast, kExact };
constexpr auto enum_names(Mode) {
  return std::to_array<EnumName<Mode>>({{Mode::kFast, "fast"}, {Mode::kExact, "exact"}});
}

struct Optim {
  double lr = 1e-6;
  std::vector<double> betas = {0.9, 0.999};
  template <class V>
  void visit(V& v) {
    v(lr, "lr", "peak learning rate").at_least(0);
    v(betas, "betas", "decay rates of AdamW").range(0, 1);
  }
  void validate(ConfigChecks& check) const {
    if (lr >= 1) check.warn("suspicious_value", {"lr"}, "less than 1", fmt::format("{}", lr));
  }
};

struct Sample {
  std::string path, name = "run";
  int64_t n = 8, mini = 4;
  bool shuffle = true;
  Mode mode = Mode::kExact;
  std::optional<int64_t> seed;
  std::vector<std::string> stop;
  std::vector<int64_t> sizes = {1, 2};
  Optim optim;
  template <class V>
  void visit(V& v) {
    v(path, "path", "model folder").must_be_given();
    v(name, "name", "name of the run");
    v(n, "n", "answers per prompt").range(1, 64).also_known_as({"num_generations"});
    v(mini, "mini", "prompts per update").at_least(1);
    v(shuffle, "shuffle", "shuffle the rows");
    v(mode, "mode", "kernel choice");
    v(seed, "seed", "seed of the sampler");
    v(stop, "stop", "stop strings");
    v(sizes, "sizes", "bucket sizes");
    v.section("optim", optim, "optimizer");
  }
  void validate(ConfigChecks& check) const {
    if (n % mini != 0) {
      check.error("not_divisible", {"mini", "n"}, "a divisor of n", fmt::format("{}", mini));
    }
  }
};

ConfigReport load(Sample& c, const std::string& yaml, std::vector<std::string> overrides = {}) {
  return load_config(c, {"t.yaml", yaml, std::move(overrides)});
}

std::string only_text(const ConfigReport& r) {
  return r.findings.all().size() == 1 ? r.findings.text() : "not one: " + r.findings.text();
}

TEST(Config, ReadsEveryType) {
  Sample c;
  const auto r = load(c,
                      "path: m/x\nname: 123\nn: 0x10\nmini: 16\nshuffle: FALSE\nmode: fast\n"
                      "seed: -7\nstop: [a, \"b c\", '']\nsizes: 5\n"
                      "optim:\n  lr: 1e-3\n  betas: [.5, 1]\n");
  EXPECT_EQ(r.findings.text(), "");
  EXPECT_EQ(c.path, "m/x");
  EXPECT_EQ(c.name, "123");
  EXPECT_EQ(c.n, 16);
  EXPECT_FALSE(c.shuffle);
  EXPECT_EQ(c.mode, Mode::kFast);
  EXPECT_EQ(c.seed, -7);
  EXPECT_EQ(c.stop, (std::vector<std::string>{"a", "b c", ""}));
  EXPECT_EQ(c.sizes, std::vector<int64_t>{5});
  EXPECT_EQ(c.optim.lr, 1e-3);
  EXPECT_EQ(c.optim.betas, (std::vector<double>{0.5, 1}));
  EXPECT_EQ(r.origins.at("optim.lr").line, 11);
  EXPECT_FALSE(r.origins.contains("optim.eps"));
}

struct Small {
  int32_t rows = 3;
  uint64_t seed = 0;
  float rate = 0.1f;
  std::optional<bool> flag;
  template <class V>
  void visit(V& v) {
    v(rows, "rows", "rows of a step");
    v(seed, "seed", "seed");
    v(rate, "rate", "rate");
    v(flag, "flag", "flag");
  }
};

TEST(Config, NarrowTypesKeepTheirRange) {
  Small c;
  auto load = [&](const std::string& yaml) { return load_config(c, {"t", yaml, {}}).findings; };
  EXPECT_EQ(load("rows: 2147483647\nseed: 9223372036854775807\nrate: 0.25\nflag: true").text(), "");
  EXPECT_EQ(c.rows, 2147483647);
  EXPECT_EQ(c.seed, 9223372036854775807u);
  EXPECT_EQ(c.flag, true);
  EXPECT_EQ(dump_yaml(config_fields(c)),
            "rows: 2147483647\nseed: 9223372036854775807\nrate: 0.25\nflag: true\n");
  EXPECT_EQ(load("rows: 2147483648").all().at(0).kind, "out_of_range");
  EXPECT_EQ(load("seed: -1").all().at(0).kind, "out_of_range");
}

TEST(Config, MessagesNameFileLineFieldAndRemedy) {
  Sample c;
  EXPECT_EQ(only_text(load(c, "path: m\nn: 65\nmini: 1")),
            "[t.yaml:2 n] expected a whole number from 1 to 64, got 65");
  EXPECT_EQ(only_text(load(c, "path: m\nn: 8.0")),
            "[t.yaml:2 n] expected a whole number from 1 to 64, got 8.0; try 8");
  EXPECT_EQ(only_text(load(c, "path: m\noptimm:\n  lr: 1")),
            "[t.yaml:2 optimm] expected a known key, got an unknown one; try optim");
  EXPECT_EQ(
      only_text(load(c, "path: m\nalgo:\n  sub:\n    n: 1\n  lr: 2")),
      "[t.yaml:2 algo] expected a known key, got an unknown one; try optim.lr, n for its keys");
  EXPECT_EQ(only_text(load(c, "path: m\nlr: 1")),
            "[t.yaml:2 lr] expected a known key, got an unknown one; try optim.lr");
  EXPECT_EQ(only_text(load(c, "path: m", {"args.num_generations=4"})),
            "[override args.num_generations] expected a known key, got an unknown one; try n");
  EXPECT_EQ(only_text(load(c, "path: m\nmode: exakt")),
            "[t.yaml:2 mode] expected one of fast, exact, got exakt; try exact");
  EXPECT_EQ(only_text(load(c, "n: 8")),
            "[t.yaml path] expected a value (model folder), got none; try path=VALUE");
  EXPECT_EQ(only_text(load(c, "path: m\noptim.lr: 1")),
            "[t.yaml:2 optim.lr] expected a known key, got an unknown one; try one section for "
            "each part of optim.lr");
  EXPECT_EQ(only_text(load(c, "path: m\noptim:\n  betas:\n    - 0.1\n    - 2")),
            "[t.yaml:5 optim.betas[1]] expected a list of numbers from 0 to 1, got 2");
}

TEST(Config, ReportsAllFaultsAtOnceAndThrows) {
  Sample c;
  const auto r = load(c, "path: ''\nn: x\noptim:\n  lr: -1\n", {"shuffle=1", "optim.lr=2"});
  EXPECT_EQ(r.findings.text(),
            "3 errors and 1 warning in the configuration\n"
            "  [override shuffle] expected true or false, got 1; try true\n"
            "  [t.yaml:1 path] expected a value (model folder), got an empty one; try path=VALUE\n"
            "  [t.yaml:2 n] expected a whole number from 1 to 64, got x\n"
            "  warning: [override optim.lr] expected less than 1, got 2");
  EXPECT_THROW(r.findings.throw_if_errors(), Error);
}

TEST(Config, CrossFieldRulesKeepQuietAboutFaultyFields) {
  Sample c;
  EXPECT_EQ(only_text(load(c, "path: m\nmini: 3")),
            "[t.yaml:2 mini] expected a divisor of n, got 3");
  EXPECT_EQ(only_text(load(c, "path: m\nmini: 3\nn: many")),
            "[t.yaml:3 n] expected a whole number from 1 to 64, got many");
}

TEST(Config, Overrides) {
  Sample c;
  auto r = load(c, "n: 4\nseed: 3\n",
                {"path=a=b, c", "name=\"x y\"", "seed=null", "stop=['###',\"\\n\"]", "+n=16",
                 "optim.lr=1e-2", "sizes=[]", "mini=8"});
  EXPECT_EQ(r.findings.text(), "");
  EXPECT_EQ(c.path, "a=b, c");
  EXPECT_EQ(c.name, "x y");
  EXPECT_EQ(c.seed, std::nullopt);
  EXPECT_EQ(c.stop, (std::vector<std::string>{"###", "\n"}));
  EXPECT_EQ(c.n, 16);
  EXPECT_EQ(c.optim.lr, 0.01);
  EXPECT_TRUE(c.sizes.empty());
  EXPECT_EQ(r.origins.at("n").source, "override");

  r = load(c, "path: m\nn: 4", {"~n"});
  EXPECT_EQ(r.findings.text(), "");
  EXPECT_EQ(c.n, 8);
  EXPECT_EQ(only_text(load(c, "path: m", {"--n", "4"})),
            "[override] expected key=value, got --n; try n=4");
  EXPECT_EQ(only_text(load(c, "path: m", {"~seed"})),
            "[override seed] expected a key that the file sets, got one that it does not set; try "
            "without ~seed");
  EXPECT_EQ(only_text(load(c, "path: m", {"optim={lr: 1}"})),
            "[override optim] expected one value, got a section in { }; try optim.NAME=VALUE");
  EXPECT_EQ(only_text(load(c, "path: m", {"trainer.optim.lr=1"})),
            "[override trainer.optim.lr] expected a known key, got an unknown one; try optim.lr");
}

TEST(Config, OverridesAloneNeedNoFile) {
  Sample c;
  EXPECT_EQ(load_config(c, {"", "", {"path=m"}}).findings.text(), "");
  EXPECT_EQ(c.path, "m");
}

TEST(Config, Interpolation) {
  ::setenv("KEEL_CONFIG_TEST", "12", 1);
  Sample c;
  auto r = load(c,
                "path: 'p/${name}-${optim.lr}-\\${x}'\nname: ${oc.env:KEEL_NOT_SET,${mode}}\n"
                "n: ${env:KEEL_CONFIG_TEST}\nsizes: [1, '${n}']\nstop: ${.name}\n");
  EXPECT_EQ(r.findings.text(), "");
  EXPECT_EQ(c.path, "p/exact-1.0e-06-${x}");  // the value of mode is its default
  EXPECT_EQ(c.n, 12);
  EXPECT_EQ(c.sizes, (std::vector<int64_t>{1, 12}));
  EXPECT_EQ(c.stop, std::vector<std::string>{"exact"});

  EXPECT_EQ(only_text(load(c, "path: ${nam}")),
            "[t.yaml:1 path] expected a value for ${nam}, got the unknown "
            "key nam; try ${name}");
  EXPECT_EQ(load(c, "path: ${name}\nname: ${path}").findings.all().size(), 2u);
  EXPECT_EQ(load(c, "path: ${path}").findings.all().size(), 1u);
  EXPECT_EQ(load(c, "path: ${optim}\noptim:\n  lr: 1e-3").findings.all().size(), 1u);
  EXPECT_EQ(load(c, "path: a${path").findings.all().at(0).kind, "unresolved_interpolation");
  EXPECT_EQ(load(c, "path: m\noptim:\n  lr: ${..n}\n", {"n=4"}).findings.text(),
            "warning: [t.yaml:3 optim.lr] expected less than 1, got 4");  // a relative reference
}

// 40 keys that each name the one before twice: 2^40 without remembering.
TEST(Config, InterpolationIsBounded) {
  Sample c;
  std::string yaml = "path: ${x-a39}\nx-a0: ''\n";
  for (int i = 1; i < 40; ++i) {
    yaml += fmt::format("x-a{}: ${{x-a{}}}${{x-a{}}}\n", i, i - 1, i - 1);
  }
  EXPECT_EQ(load(c, yaml).findings.all().at(0).kind, "missing_key");
  yaml.replace(yaml.find("''"), 2, "yy");
  EXPECT_TRUE(load(c, yaml).findings.has_error_at("path"));
}

TEST(Config, DumpReadsBack) {
  Sample c;
  c.path = "we\"ird: ${n} \\${n} \\ #x\n\ttab \xC3\xA9";
  c.name = "null";
  c.seed = -1;
  c.stop = {"", "yes", "1e-3", "~", "[a", "\\", "- x", "é", "017"};
  c.optim.lr = 0.1 + 0.2;
  c.optim.betas = {1e-300, 1};
  const std::string yaml = dump_yaml(config_fields(c));
  Sample d;
  EXPECT_EQ(load(d, yaml).findings.text(), "");
  EXPECT_EQ(dump_json(config_fields(d)), dump_json(config_fields(c)));
  EXPECT_EQ(d.path, c.path);
  EXPECT_EQ(config_hash(config_fields(d)), config_hash(config_fields(c)));
  d.optim.lr = 0.3;
  EXPECT_NE(config_hash(config_fields(d)), config_hash(config_fields(c)));
  EXPECT_EQ(dump_json(config_fields(d))["optim"]["lr"], 0.3);
}

TEST(Config, HashIsStable) {
  Sample c;
  EXPECT_EQ(config_hash(config_fields(c)), "db352d28f065fb8a");
}

TEST(Config, OptionsShowOrigin) {
  Sample c;
  const auto r = load(c, "path: m\nn: 4\n", {"optim.lr=1e-5"});
  const auto options = config_options(c, r.origins);
  ASSERT_EQ(options.size(), 11u);
  EXPECT_EQ(options[0].fallback, "???");
  EXPECT_EQ(options[2].origin, "t.yaml:2");
  EXPECT_EQ(options[2].value, "4");
  EXPECT_EQ(options[2].fallback, "8");
  EXPECT_EQ(options[2].type, "a whole number from 1 to 64");
  EXPECT_EQ(options[9].origin, "override");
  EXPECT_EQ(options[9].value, "1.0e-05");
  EXPECT_EQ(options[10].origin, "default");
}

TEST(Yaml, TrapsAreRefusedWithTheirLine) {
  Sample c;
  struct Case {
    const char *yaml, *kind;
    int line;
  };
  for (const Case& t :
       std::vector<Case>{{"path: m\nname: 'x\n", "yaml_syntax", 2},
                         {"path: m\nx-\xC3\xA9: \"a\"\nname: \"x\n", "yaml_syntax", 3},
                         {"path: m\n\tn: 2\n", "yaml_syntax", 2},
                         {"path: m\noptim:\n  lr: 1\n \tn: 2\n", "yaml_syntax", 4},
                         {"path: m\n...\nn: 2\n", "yaml_syntax", 3},
                         {"path: m\n? [a]\n: b\n", "yaml_syntax", 2},
                         {"path: m\n: b\n", "yaml_syntax", 2},
                         {"path: m\nname: a\x01z\n", "encoding", 2},
                         {"path: m\nname: \xED\xA0\x80\n", "encoding", 2},
                         {"path: m\nname: !!str x\n", "bad_tag", 2},
                         {"path: m\nname: \"\\q\"\n", "yaml_syntax", 2},
                         {"path: m\nn: 012\n", "ambiguous_number", 2},
                         {"path: m\noptim:\n  lr: 1_0.5\n", "ambiguous_number", 3},
                         {"path: m\nshuffle: tRue\n", "wrong_type", 2},
                         {"path: m\nshuffle: N\n", "ambiguous_bool", 2},
                         {"path: m\nname:\n", "wrong_type", 2},
                         {"path: m\nname: [a]\n", "wrong_type", 2},
                         {"path: m\noptim: 3\n", "wrong_type", 2},
                         {"path: ~\n", "missing_key", 1},
                         {"just words\n", "wrong_type", 1}}) {
    const auto r = load(c, t.yaml);
    ASSERT_EQ(r.findings.all().size(), 1u) << t.yaml << r.findings.text();
    EXPECT_EQ(r.findings.all()[0].kind, t.kind) << t.yaml << r.findings.text();
    EXPECT_EQ(r.findings.all()[0].line, t.line) << t.yaml << r.findings.text();
  }
}

TEST(Yaml, AnchorsAndMergeKeys) {
  Sample c;
  const auto r = load(c,
                      "x-base: &base\n  lr: 0.5\n  betas: [0, 0]\n"
                      "path: m\noptim:\n  <<: *base\n  lr: 0.25\n");
  EXPECT_EQ(r.findings.text(), "");
  EXPECT_EQ(c.optim.lr, 0.25);
  EXPECT_EQ(c.optim.betas, (std::vector<double>{0, 0}));
}

TEST(Yaml, BlockTextKeepsTabsAndLines) {
  Sample c;
  const auto r = load(c, "path: m\r\nname: |\r\n  a: \tb\r\n  yes\r\n");
  EXPECT_EQ(r.findings.text(), "");
  EXPECT_EQ(c.name, "a: \tb\nyes\n");
}

// Whatever bytes a file holds, the answer is a list of findings.
TEST(Yaml, MutatedTextNeverThrows) {
  const std::string good =
      "x-b: &b {lr: 1e-3}\npath: m/x # note\nname: 'a ${path} \"q\"'\nn: 16\nseed: ~\n"
      "stop: [a, \"b\\n\", *b]\nsizes:\n  - 1\n  - 0x2\noptim:\n  <<: *b\n  betas: [.5, 1]\n";
  const std::string odd = "\t\n :-#[]{}'\"&*!|>%@`~?,\\$\x01\x80\xC3" + std::string(1, '\0');
  for (uint64_t round = 0; round < 4000; ++round) {
    std::string text = good;
    for (uint64_t k = 0; k <= round % 4; ++k) {
      const auto at = static_cast<size_t>(uniform_int(text.size(), 11, round * 16 + 3 * k));
      const char c = odd[static_cast<size_t>(uniform_int(odd.size(), 11, round * 16 + 3 * k + 1))];
      switch (uniform_int(3, 11, round * 16 + 3 * k + 2)) {
        case 0:
          text[at] = c;
          break;
        case 1:
          text.insert(at, 1, c);
          break;
        default:
          text.erase(at, 3);
      }
    }
    Sample c;
    ASSERT_NO_THROW(load(c, text)) << text;
  }
}

TEST(Suggest, Distances) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("Max-Len", "max_len"), 0);
  EXPECT_EQ(edit_distance("grop", "grpo"), 1);
  EXPECT_EQ(nearest_name("gae", {"ppo", "grpo", "gspo"}), "");
  EXPECT_EQ(nearest_name("grp", {"ppo", "grpo", "gspo"}), "grpo");
}

}  // namespace
}  // namespace keel
