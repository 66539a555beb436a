// Readers of the twin's input files: every shipped file, and what is said about broken ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "keel/base/error.h"
#include "keel/base/rng.h"
#include "keel/base/test_data.h"
#include "keel/sim/catalog.h"
#include "keel/sim/input/fields.h"
#include "keel/sim/run.h"

namespace keel::sim {
namespace {

std::string shipped() { return std::string(KEEL_SOURCE_DIR).append("/twin"); }

std::string fault_of(const std::string& text) {
  try {
    parse_runs(text, "runs.yaml");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(SimInput, ReadsEveryShippedFile) {
  const auto catalog = load_catalog(shipped());
  EXPECT_EQ(catalog.hardware.size(), 13u);
  EXPECT_GT(catalog.models.size(), 20u);
  size_t runs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::golden("sim/runs"))) {
    ConfigFindings warnings;
    for (const auto& run : load_runs(entry.path().string(), &warnings)) {
      ++runs;
      EXPECT_EQ(catalog.find_hardware(run.hardware).id, run.hardware);
      if (run.kind != RunKind::kKernel) {
        EXPECT_EQ(catalog.find_model(run.model).name, run.model);
      }
      EXPECT_FALSE(run.targets.empty()) << run.id;
    }
    EXPECT_EQ(warnings.text(), "");
  }
  EXPECT_EQ(runs, 162u);
}

TEST(SimInput, ModelsHaveTheirPublishedSizes) {
  const auto path = shipped() + "/models.yaml";
  const auto models = load_models(path);
  const auto file = open_input(read_input_text(path), path, "sim-models/1");
  MapReader root(file, file->root, "", 1);
  auto list = root.map("models");
  for (auto& [name, entry] : list.named_maps()) {
    double total = 0, active = 0;
    entry.read("params_total_b", total);
    entry.read("params_active_b", active);
    EXPECT_NEAR(static_cast<double>(total_params(models.at(name))) / 1e9, total,
                6e-5 * total + 6e-5)
        << name;
    EXPECT_NEAR(static_cast<double>(active_params(models.at(name))) / 1e9, active,
                6e-5 * active + 6e-5)
        << name;
  }
}

constexpr char kRun[] = R"(schema: sim-runs/1
family: f
runs:
- id: a
  kind: rollout
  hardware: {ref: h100, devices: 8}
  model: qwen3-8b
  engine: {memory_fraction: 0.9}
  workload: {prompts: 4, response_len: {mean: 100, max: 200}}
)";

std::string with(std::string from, const std::string& to) {
  std::string text = kRun;
  const auto at = text.find(from);
  KEEL_CHECK(at != std::string::npos, "{}", from);
  return text.replace(at, from.size(), to);
}

TEST(SimInput, FaultsNameFileLineAndField) {
  EXPECT_EQ(fault_of(kRun), "");
  using testing::AllOf;
  using testing::HasSubstr;
  EXPECT_THAT(fault_of(with("memory_fraction: 0.9", "memory_fractoin: 0.9")),
              AllOf(HasSubstr("runs.yaml:8 runs[0].engine.memory_fractoin"),
                    HasSubstr("try memory_fraction")));
  EXPECT_THAT(fault_of(with("prompts: 4", "prompts: -4")),
              HasSubstr("[runs.yaml:9 runs[0].workload.prompts] expected a whole number"));
  EXPECT_THAT(fault_of(with("prompts: 4", "prompts: four")), HasSubstr("got four"));
  EXPECT_THAT(fault_of(with("mean: 100", "mean: 300")), HasSubstr("at most the maximum 200"));
  EXPECT_THAT(fault_of(with("kind: rollout", "kind: rolout")), HasSubstr("one of rl_step"));
  EXPECT_THAT(fault_of(with("memory_fraction: 0.9", "memory_fraction: 9")), HasSubstr("share"));
  EXPECT_THAT(fault_of(with("schema: sim-runs/1", "schema: sim-runs/2")), HasSubstr("runs.yaml:1"));
  EXPECT_THAT(fault_of(with("devices: 8", "devices: 0")), HasSubstr("runs.yaml:6"));
  ConfigFindings warnings;
  parse_runs(with("memory_fraction: 0.9", "cooling: water"), "runs.yaml", &warnings);
  EXPECT_THAT(warnings.text(), HasSubstr("runs[0].engine.cooling"));
  Catalog catalog;
  catalog.models["qwen3-8b"] = {};
  EXPECT_THROW(catalog.find_model("qwen3-8B-"), Error);
}

// Random edits of real files: an Error or a result, never anything else.
TEST(SimInput, SurvivesBrokenFiles) {
  const std::string sources[] = {read_input_text(test::golden("sim/runs/cann-other.yaml")),
                                 read_input_text(shipped() + "/hardware/ascend-a3-die.yaml"),
                                 read_input_text(shipped() + "/models.yaml").substr(0, 1500)};
  const char alphabet[] = "{}[]:,-\n \"'#&*!|>%@`x9.\t\x01\xff";
  int refused = 0;
  for (uint64_t i = 0; i < 600; ++i) {
    std::string text = sources[i % 3].substr(0, 3000);
    const auto edits = 1 + uniform_int(4, 7, i, 0);
    for (uint64_t e = 0; e < edits; ++e) {
      const auto at = uniform_int(text.size(), 7, i, 3 * e + 1);
      const char c = alphabet[uniform_int(sizeof(alphabet) - 1, 7, i, 3 * e + 2)];
      switch (uniform_int(3, 7, i, 3 * e + 3)) {
        case 0:
          text[at] = c;
          break;
        case 1:
          text.erase(at, 1 + uniform_int(20, 8, i, e));
          break;
        default:
          text.insert(at, 1, c);
      }
    }
    try {
      if (i % 3 == 0) parse_runs(text, "f");
      if (i % 3 == 1) parse_hardware(text, "f");
      if (i % 3 == 2) parse_models(text, "f");
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(SimInput, ReadsHuggingFaceConfigs) {
  const auto v3 = model_from_config(
      Json::parse(R"({"model_type":"deepseek_v3","num_hidden_layers":61,"hidden_size":7168,
    "num_attention_heads":128,"num_key_value_heads":128,"intermediate_size":18432,
    "moe_intermediate_size":2048,"n_routed_experts":256,"num_experts_per_tok":8,
    "n_shared_experts":1,"first_k_dense_replace":3,"q_lora_rank":1536,"kv_lora_rank":512,
    "qk_rope_head_dim":64,"qk_nope_head_dim":128,"v_head_dim":128,"vocab_size":129280})"),
      "v3");
  EXPECT_NEAR(static_cast<double>(total_params(v3)) / 1e9, 671.0254, 1e-3);
  const auto next = model_from_config(
      Json::parse(R"({"model_type":"qwen3_next","num_hidden_layers":48,"hidden_size":2048,
    "num_attention_heads":16,"num_key_value_heads":2,"head_dim":256,"intermediate_size":5120,
    "moe_intermediate_size":512,"shared_expert_intermediate_size":512,"num_experts":512,
    "num_experts_per_tok":10,"full_attention_interval":4,"linear_num_key_heads":16,
    "linear_num_value_heads":32,"linear_key_head_dim":128,"linear_value_head_dim":128,
    "linear_conv_kernel_dim":4,"vocab_size":151936})"),
      "next");
  EXPECT_NEAR(static_cast<double>(total_params(next)) / 1e9, 79.7, 0.5);  // published as 80 B
  EXPECT_EQ(kv_bytes_per_token(next, 1, 2), 12 * 2 * 2 * 256 * 2);
  EXPECT_GT(state_bytes_per_sequence(next, 1), 36 * 32 * 128 * 128 * 4);
  EXPECT_THROW(model_from_config(Json::parse(R"({"model_type":"deepseek_v3"})"), "v3"), Error);
}

TEST(Lengths, DrawnMeanIsThePublishedOne) {
  const LengthModel model;
  const auto lengths = draw_lengths(model, 512, 16, 7345, 32768, 1);
  double sum = 0;
  for (const auto x : lengths) sum += static_cast<double>(x);
  EXPECT_NEAR(sum / 8192, 7345, 0.5);
  EXPECT_EQ(lengths, draw_lengths(model, 512, 16, 7345, 32768, 1));
  EXPECT_NE(lengths, draw_lengths(model, 512, 16, 7345, 32768, 2));
  EXPECT_LE(*std::max_element(lengths.begin(), lengths.end()), 32768);
  EXPECT_THROW(draw_lengths(model, 1, 1, 300, 200, 1), Error);
}

}  // namespace
}  // namespace keel::sim
