#include <CLI/CLI.hpp>

#include "keel/base/error.h"
#include "keel/base/json.h"
#include "keel/cli/case_lines.h"
#include "keel/cli/verbs.h"
#include "keel/model/load.h"
#include "keel/rl/policy_pass.h"
#include "keel/spec/model_name.h"

namespace keel::cli {
namespace {

struct Options {
  std::string model, cases = "-", dtype = "f32";
  float temperature = 1;
};

ops::DType dtype_of(const std::string& name) {
  KEEL_REQUIRE(name == "f32" || name == "bf16", "[--dtype] expected f32 or bf16, got {}", name);
  return name == "f32" ? ops::DType::kF32 : ops::DType::kBF16;
}

// {"ids"} -> log p of ids[1..] and the entropy of the distribution that each was drawn from.
OrderedJson run_case(model::Model& model, float temperature, const OrderedJson& row) {
  KEEL_REQUIRE(
      row.is_object() && row.contains("ids") && row["ids"].is_array() && row["ids"].size() >= 2,
      "[cases] expected an object with \"ids\" of at least two tokens, got {}",
      row.dump().substr(0, 80));
  const auto ids = row["ids"].get<std::vector<int32_t>>();
  KEEL_REQUIRE(std::ssize(ids) <= model.spec().max_positions,
               "[cases] expected at most {} ids, got {}", model.spec().max_positions, ids.size());
  rl::PassItem item;
  item.prompt = std::span(ids).first(1);
  item.answer = std::span(ids).subspan(1);
  item.temperature = temperature;
  const auto values = rl::compute_log_probs(model, std::span(&item, 1), {});
  return {{"logprobs", values.log_prob}, {"entropy", values.entropy}};
}

int run(const Options& o) {
  const ModelDir dir(resolve_model(o.model));
  const auto model = model::load_model(dir, dtype_of(o.dtype));
  return for_each_case(
      o.cases, [&](const OrderedJson& row) { return run_case(*model, o.temperature, row); });
}

}  // namespace

Action define_logprobs(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_option("--model", o->model, "model folder, or org/name in the Hugging Face cache")
      ->required();
  app.add_option("--cases", o->cases, "JSON lines with {\"ids\": [...]}; - = standard input");
  app.add_option("--dtype", o->dtype, "f32 or bf16");
  app.add_option("--temperature", o->temperature, "of the distribution");
  return [o] { return run(*o); };
}

}  // namespace keel::cli
