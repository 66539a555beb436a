#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "keel/cli/verbs.h"
#include "keel/io/json_file.h"
#include "keel/spec/init_model.h"

namespace keel::cli {
namespace {

struct Options {
  std::string config, folder, tokenizer;
  uint64_t seed = 1;
};

}  // namespace

Action define_init(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_option("config", o->config, "config.json as in a Hugging Face folder")->required();
  app.add_option("folder", o->folder, "folder to write; must be new or empty")->required();
  app.add_option("--tokenizer", o->tokenizer, "folder whose tokenizer is copied");
  app.add_option("--seed", o->seed, "of the random weights");
  return [o] {
    init_model(o->folder, read_json_file(o->config), o->seed, o->tokenizer);
    fmt::print("{}\n", o->folder);
    return 0;
  };
}

}  // namespace keel::cli
