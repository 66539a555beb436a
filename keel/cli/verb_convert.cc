#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "keel/base/error.h"
#include "keel/cli/verbs.h"
#include "keel/io/dtype.h"
#include "keel/observe/console.h"
#include "keel/spec/gguf_convert.h"

namespace keel::cli {
namespace {

struct Options {
  std::string gguf, out, dtype = "bf16";
};

int run(const Options& o) {
  const auto dtype = dtype_from_torch_name(o.dtype);
  KEEL_REQUIRE(dtype && *dtype != DType::kF64, "[--dtype] expected f32, bf16 or f16, got {}",
               o.dtype);
  {
    Console console({});
    console.phase(0, "convert", 100, "%");
    convert_gguf(o.gguf, o.out, *dtype, [&](double fraction, const std::string&) {
      console.progress(static_cast<int64_t>(fraction * 100));
    });
    console.end_phase();
  }
  fmt::print("{}\n", o.out);
  return 0;
}

}  // namespace

Action define_convert(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_option("gguf", o->gguf, "GGUF file (F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K, Q6_K)")
      ->required();
  app.add_option("folder", o->out, "Hugging Face folder to write; must be new or empty")
      ->required();
  app.add_option("--dtype", o->dtype, "of the weights written: f32, bf16 or f16");
  return [o] { return run(*o); };
}

}  // namespace keel::cli
