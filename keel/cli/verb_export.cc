#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "keel/base/error.h"
#include "keel/cli/verbs.h"
#include "keel/rl/export_checkpoint.h"

namespace keel::cli {
namespace {

struct Options {
  std::string run, folder, dtype = "bf16";
  int64_t step = 0;
};

}  // namespace

Action define_export(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_option("run", o->run, "run folder")->required();
  app.add_option("folder", o->folder, "Hugging Face folder to write; must be new or empty")
      ->required();
  app.add_option("--step", o->step, "checkpoint to take; 0 = the newest");
  app.add_option("--dtype", o->dtype, "of the weights written: f32, bf16 or f16");
  return [o] {
    const auto dtype = dtype_from_torch_name(o->dtype);
    KEEL_REQUIRE(dtype && *dtype != DType::kF64, "[--dtype] expected f32, bf16 or f16, got {}",
                 o->dtype);
    const int64_t step = rl::export_checkpoint(o->run, o->step, o->folder, *dtype);
    fmt::print(stderr, "step {}\n", step);
    fmt::print("{}\n", o->folder);
    return 0;
  };
}

}  // namespace keel::cli
