#include <CLI/CLI.hpp>

#include "keel/cli/case_lines.h"
#include "keel/cli/verbs.h"
#include "keel/spec/model_name.h"
#include "keel/tokenizer/tokenizer.h"

namespace keel::cli {
namespace {

struct Options {
  std::string tokenizer, cases = "-";
};

}  // namespace

Action define_tokenize(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_option("--tokenizer", o->tokenizer,
                 "folder with tokenizer.json, or org/name in the cache")
      ->required();
  app.add_option("--cases", o->cases,
                 "JSON lines: {\"text\"} -> {\"ids\"}; {\"messages\",\"tools\",\"kwargs\"} -> "
                 "{\"text\",\"ids\"}; - = "
                 "standard input");
  return [o] {
    const auto tokenizer = Tokenizer::load(resolve_model(o->tokenizer));
    return for_each_case(
        o->cases, [&](const OrderedJson& row) { return run_tokenize_case(*tokenizer, row); });
  };
}

}  // namespace keel::cli
