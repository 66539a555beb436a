#include "keel/spec/export.h"

#include <gtest/gtest.h>

#include <cmath>

#include "keel/base/test_data.h"
#include "keel/io/json_file.h"
#include "keel/io/test_util.h"
#include "keel/spec/init_model.h"
#include "keel/spec/model_dir.h"

namespace keel {
namespace {

using test::fault_of;
using test::golden;
using test::read_bytes;
using test::TempFolder;

ReadParam reader_of(const ModelDir& model) {
  return [&model](size_t i, const ParamSpec&, std::span<float> out) { model.read_f32(i, out); };
}

std::map<std::string, std::vector<std::byte>> stored(const std::string& folder) {
  std::vector<Finding> findings;
  const auto weights = open_weight_files(folder, findings);
  std::map<std::string, std::vector<std::byte>> out;
  for (const auto& [name, t] : weights.tensors) {
    const auto bytes = weights.files[t.file]->bytes(*t.tensor);
    out[name].assign(bytes.begin(), bytes.end());
  }
  return out;
}

// Loading and saving gives the same tensors under the same names, and the same small files.
TEST(Export, RoundTripOfEveryGoldenModel) {
  TempFolder t;
  for (const std::string name : {"llama3", "qwen2_bf16", "qwen3_tied", "qwen3_tied_lmhead",
                                 "qwen3_untied_sharded", "qwen3_moe", "qwen3_moe_fused"}) {
    const std::string from = golden("models/" + name), to = t.file(name);
    const ModelDir model(from);
    ExportOptions options;
    options.dtype = model.spec().dtype;
    options.expert_layout = model.expert_layout();
    options.tied_head = model.has_tied_head();
    options.copy_from = from;
    options.max_shard_bytes = name == "qwen3_untied_sharded" ? 200000 : uint64_t{1} << 30;
    export_model(to, model.spec(), options, reader_of(model));
    EXPECT_EQ(stored(to), stored(from)) << name;
    for (const std::string file : {"config.json", "tokenizer.json", "generation_config.json"}) {
      EXPECT_EQ(read_bytes(to + "/" + file), read_bytes(from + "/" + file)) << name << file;
    }
    for (const auto& f : check_model_dir(to, {true, true})) ADD_FAILURE() << name << f.line();
  }
  EXPECT_TRUE(std::filesystem::exists(t.file("qwen3_untied_sharded/model.safetensors.index.json")));
}

TEST(Export, OtherDtypeChangesOnlyThatField) {
  TempFolder t;
  const std::string from = golden("models/llama3");
  const ModelDir model(from);
  ExportOptions options;
  options.dtype = DType::kBF16;
  options.copy_from = from;
  export_model(t.file("m"), model.spec(), options, reader_of(model));
  auto config = read_json_file(from + "/config.json");
  config["dtype"] = "bfloat16";
  EXPECT_EQ(read_json_file(t.file("m/config.json")), config);
  EXPECT_EQ(ModelDir(t.file("m")).stored_dtype(0), DType::kBF16);
  EXPECT_EQ(fault_of([&] { export_model(t.file("m"), model.spec(), options, reader_of(model)); }),
            "exists");
}

Json tiny_moe() {
  return Json::parse(R"({"model_type": "qwen3_moe", "hidden_size": 32, "intermediate_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "vocab_size": 464, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
    "norm_topk_prob": true, "mlp_only_layers": [0], "torch_dtype": "float32",
    "tie_word_embeddings": true, "eos_token_id": 458})");
}

TEST(InitModel, MakesAGoodFolderFromTheSeed) {
  TempFolder t;
  const std::string tokenizer = golden("tokenizers/qwen");
  init_model(t.file("a"), tiny_moe(), 1, tokenizer);
  init_model(t.file("b"), tiny_moe(), 1, tokenizer);
  init_model(t.file("c"), tiny_moe(), 2, tokenizer);
  for (const auto& f : check_model_dir(t.file("a"), {true, true})) ADD_FAILURE() << f.line();
  EXPECT_EQ(stored(t.file("a")), stored(t.file("b")));
  EXPECT_NE(stored(t.file("a")), stored(t.file("c")));
  const ModelDir model(t.file("a"));
  EXPECT_TRUE(model.spec().is_moe_layer(1));
  for (size_t i = 0; i < model.params().size(); ++i) {
    const auto& p = model.params()[i];
    std::vector<float> x(static_cast<size_t>(p.num_elements()));
    model.read_f32(i, x);
    double sum = 0, squares = 0;
    for (const float v : x) sum += v, squares += static_cast<double>(v) * v;
    const auto n = static_cast<double>(x.size());
    if (p.shape.size() == 1) {
      EXPECT_EQ(sum, n) << p.name;
    } else {  // four standard errors
      EXPECT_NEAR(sum / n, 0, 4 * 0.02 / std::sqrt(n)) << p.name;
      EXPECT_NEAR(std::sqrt(squares / n), 0.02, 4 * 0.02 / std::sqrt(2 * n)) << p.name;
    }
  }
}

TEST(InitModel, WrongConfigLeavesNothing) {
  TempFolder t;
  auto config = tiny_moe();
  config["num_key_value_heads"] = 3;
  EXPECT_EQ(fault_of([&] { init_model(t.file("a"), config, 1); }), "bad_value");
  EXPECT_TRUE(std::filesystem::is_empty(t.path()));
}

}  // namespace
}  // namespace keel
