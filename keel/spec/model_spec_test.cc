#include "keel/spec/model_spec.h"

#include <gtest/gtest.h>

#include <cmath>

#include "keel/base/rng.h"
#include "keel/base/test_data.h"
#include "keel/io/json_file.h"
#include "keel/io/test_util.h"
#include "keel/spec/parameters.h"

namespace keel {
namespace {

Json golden_config(const std::string& model, const std::string& file = "config.json") {
  return read_json_file(test::golden("models/" + model + "/" + file));
}

Json small_config() {
  return Json::parse(R"({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 272})");
}

std::string fault_of_config(const Json& config) {
  return test::fault_of([&] { model_spec_from_json(config); });
}

TEST(ModelSpec, OldAndNewKeysGiveTheSame) {
  for (const std::string model : {"llama3", "qwen3_moe"}) {
    const auto now = model_spec_from_json(golden_config(model));
    const auto old = model_spec_from_json(golden_config(model, "config_legacy.json"));
    EXPECT_EQ(config_json(now), config_json(old)) << model;
    EXPECT_EQ(inv_freq(now), inv_freq(old)) << model;
  }
}

TEST(ModelSpec, WrittenConfigReadsBackEqual) {
  for (const std::string model : {"llama3", "qwen2_bf16", "qwen3_tied", "qwen3_moe"}) {
    const auto spec = model_spec_from_json(golden_config(model));
    const auto again = model_spec_from_json(Json::parse(config_json(spec).dump()));
    EXPECT_EQ(config_json(spec), config_json(again)) << model;
  }
}

TEST(ModelSpec, FieldsOfFamilies) {
  const auto llama = model_spec_from_json(golden_config("llama3"));
  EXPECT_EQ(llama.rope.type, RopeSpec::Type::kLlama3);
  EXPECT_EQ(llama.rope.original_max_position_embeddings, 64);
  EXPECT_FALSE(llama.qk_norm || llama.qkv_bias || llama.tied);
  const auto qwen2 = model_spec_from_json(golden_config("qwen2_bf16"));
  EXPECT_EQ(qwen2.head_dim, 8);  // hidden / heads
  EXPECT_TRUE(qwen2.qkv_bias && qwen2.tied);
  EXPECT_EQ(qwen2.dtype, DType::kBF16);
  const auto moe = model_spec_from_json(golden_config("qwen3_moe"));
  EXPECT_TRUE(moe.qk_norm);
  EXPECT_EQ(moe.moe.num_experts, 8);
  EXPECT_FALSE(moe.is_moe_layer(0));
  EXPECT_TRUE(moe.is_moe_layer(1) && moe.is_moe_layer(2));
}

TEST(ModelSpec, SparseStep) {
  ModelSpec s;
  s.layers = 6;
  s.moe.num_experts = 4;
  s.moe.sparse_step = 2;
  s.moe.mlp_only = {3};
  std::vector<int64_t> moe;
  for (int64_t i = 0; i < s.layers; ++i) {
    if (s.is_moe_layer(i)) moe.push_back(i);
  }
  EXPECT_EQ(moe, (std::vector<int64_t>{1, 5}));
}

TEST(ModelSpec, GenerationConfigDecidesWhereToStop) {
  auto spec = model_spec_from_json(golden_config("qwen2_bf16"));
  EXPECT_EQ(spec.eos_ids, (std::vector<int64_t>{458}));
  std::vector<Finding> findings;
  apply_generation_config(golden_config("qwen2_bf16", "generation_config.json"), spec, findings);
  EXPECT_TRUE(findings.empty());
  EXPECT_EQ(spec.eos_ids, (std::vector<int64_t>{458, 456}));
}

TEST(ModelSpec, DefaultsOfTransformers) {
  auto j = small_config();
  j.erase("head_dim");
  EXPECT_EQ(model_spec_from_json(j).head_dim, 128);  // Qwen3 alone
  j["model_type"] = "llama";
  j["architectures"] = {"LlamaForCausalLM"};
  j.erase("num_key_value_heads");
  const auto llama = model_spec_from_json(j);
  EXPECT_EQ(llama.head_dim, 8);
  EXPECT_EQ(llama.kv_heads, 4);
  EXPECT_EQ(llama.rope.theta, 10000);
  EXPECT_FALSE(llama.tied);
}

TEST(ModelSpec, Refuses) {
  const struct {
    const char* patch;
    const char* fault;
  } cases[] = {
      {R"({})", ""},
      {R"({"model_type": "mamba", "architectures": null})", "unsupported_model"},
      {R"({"model_type": null, "architectures": null})", "missing_field"},
      {R"({"architectures": ["LlamaForCausalLM"]})", "unsupported_model"},
      {R"({"architectures": ["Qwen3ForSequenceClassification"]})", "unsupported_model"},
      {R"({"hidden_size": null})", "missing_field"},
      {R"({"hidden_size": "32"})", "wrong_type"},
      {R"({"hidden_size": 32.5})", "wrong_type"},
      {R"({"hidden_size": -1})", "bad_value"},
      {R"({"hidden_size": 18446744073709551615})", "bad_value"},
      {R"({"num_key_value_heads": 3})", "bad_value"},
      {R"({"num_key_value_heads": 0})", "bad_value"},
      {R"({"head_dim": 15})", "bad_value"},
      {R"({"rms_norm_eps": 0})", "bad_value"},
      {R"({"hidden_act": "gelu"})", "unsupported_value"},
      {R"({"attention_bias": true})", "unsupported_value"},
      {R"({"torch_dtype": "float64"})", "unsupported_value"},
      {R"({"quantization_config": {"bits": 4}})", "unsupported_value"},
      {R"({"rope_scaling": {"type": "yarn", "factor": 4}})", "unsupported_value"},
      {R"({"rope_scaling": {"rope_type": "default"}})", ""},
      {R"({"rope_scaling": 3})", "wrong_type"},
      {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8}})", "missing_field"},
      {R"({"rope_parameters": {"rope_theta": 0}})", "bad_value"},
      {R"({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}})",
       "unsupported_value"},
      {R"({"use_sliding_window": true, "sliding_window": 8, "max_window_layers": 1})",
       "unsupported_value"},
      {R"({"use_sliding_window": true, "sliding_window": 8, "max_window_layers": 2})", ""},
      {R"({"use_sliding_window": false, "sliding_window": 8, "max_window_layers": 1})", ""},
      {R"({"layer_types": ["full_attention", "sliding_attention"]})", "unsupported_value"},
      {R"({"eos_token_id": [1, 2]})", ""},
      {R"({"eos_token_id": 272})", "bad_value"},
      {R"({"eos_token_id": "x"})", "wrong_type"},
      {R"({"model_type": "qwen3_moe", "architectures": null, "num_experts": 4,
           "num_experts_per_tok": 5, "moe_intermediate_size": 8})",
       "bad_value"},
      {R"({"model_type": "qwen3_moe", "architectures": null})", "missing_field"},
  };
  for (const auto& c : cases) {
    Json config = small_config();
    config.merge_patch(Json::parse(c.patch));
    EXPECT_EQ(fault_of_config(config), c.fault) << c.patch;
  }
  EXPECT_EQ(fault_of_config(Json::array()), "wrong_type");
}

TEST(ModelSpec, MessageNamesTheField) {
  auto config = small_config();
  config["num_hidden_layers"] = "two";
  try {
    model_spec_from_json(config);
    FAIL();
  } catch (const FileError& e) {
    EXPECT_STREQ(e.what(),
                 "[config.json: num_hidden_layers] expected an integer, got \"two\" (string)");
  }
}

// Any JSON value in any field: an error or a spec with sizes that fit, never a crash.
TEST(ModelSpec, RandomValuesNeverCrash) {
  const std::vector<Json> values = {nullptr,
                                    true,
                                    -1,
                                    0,
                                    1,
                                    7,
                                    1e300,
                                    "text",
                                    "llama3",
                                    Json{3},
                                    Json{{"factor", "x"}},
                                    INT64_MIN,
                                    UINT64_MAX,
                                    Json::array(),
                                    Json::object()};
  std::vector<std::string> keys;
  const Json base = golden_config("qwen3_moe");
  for (const auto& [key, value] : base.items()) keys.push_back(key);
  keys.insert(keys.end(), {"rope_scaling", "torch_dtype", "num_experts", "layer_types"});
  int good = 0;
  for (uint64_t i = 0; i < 20000; ++i) {
    Json config = base;
    for (uint64_t k = 0; k <= i % 3; ++k) {
      config[keys[uniform_int(keys.size(), 1, i, k)]] = values[uniform_int(values.size(), 2, i, k)];
    }
    std::vector<Finding> findings;
    const auto spec = parse_model_spec(config, findings);
    if (has_errors(findings)) continue;
    ++good;
    EXPECT_GT(num_parameters(spec), 0);
    EXPECT_EQ(inv_freq(spec).size(), static_cast<size_t>(spec.head_dim / 2));
  }
  EXPECT_GT(good, 100);
}

TEST(InvFreq, DefaultAndLlama3) {
  ModelSpec s;
  s.head_dim = 8;
  s.rope.theta = 10000;
  EXPECT_EQ(inv_freq(s), (std::vector<float>{1.0f, 0.1f, 0.01f, 0.001f}));
  // theta 10000, old length 64: wavelengths 6.3, 62.8, 628, 6283 against 16 (kept) and 64 (cut).
  s.rope.type = RopeSpec::Type::kLlama3;
  s.rope.factor = 8;
  s.rope.low_freq_factor = 1;
  s.rope.high_freq_factor = 4;
  s.rope.original_max_position_embeddings = 64;
  const auto f = inv_freq(s);
  EXPECT_EQ(f[0], 1.0f);
  const double smooth = (64 * 0.1 / (2 * 3.14159265358979) - 1) / 3;
  EXPECT_NEAR(f[1], (1 - smooth) * 0.1 / 8 + smooth * 0.1, 1e-8);
  EXPECT_EQ(f[2], 0.01f / 8);
  EXPECT_EQ(f[3], 0.001f / 8);
}

TEST(Parameters, CountsAndCosts) {
  // Qwen3-0.6B as published: 751,632,384 with the head counted, 596,049,920 tied.
  ModelSpec s;
  s.family = Family::kQwen3;
  s.hidden = 1024;
  s.layers = 28;
  s.heads = 16;
  s.kv_heads = 8;
  s.head_dim = 128;
  s.intermediate = 3072;
  s.vocab = 151936;
  s.qk_norm = true;
  s.tied = true;
  EXPECT_EQ(num_parameters(s), 596049920);
  EXPECT_EQ(active_parameters(s), num_parameters(s));
  s.tied = false;
  EXPECT_EQ(num_parameters(s), 751632384);
  EXPECT_EQ(kv_bytes_per_token(s, DType::kBF16), 28 * 2 * 8 * 128 * 2);
  const double norms = 28.0 * (2 * 1024 + 2 * 128) + 1024;
  EXPECT_EQ(flops_per_token(s, 0), 2 * (596049920 - norms));
  EXPECT_EQ(flops_per_token(s, 1000) - flops_per_token(s, 0), 4.0 * 28 * 2048 * 1000);
}

TEST(Parameters, ActiveOfQwen3_30B_A3B) {
  ModelSpec s;
  s.family = Family::kQwen3Moe;
  s.hidden = 2048;
  s.layers = 48;
  s.heads = 32;
  s.kv_heads = 4;
  s.head_dim = 128;
  s.intermediate = 6144;
  s.vocab = 151936;
  s.qk_norm = true;
  s.moe = {128, 8, 768, true, 1, {}, 0.001};
  EXPECT_NEAR(static_cast<double>(num_parameters(s)), 30.5e9, 0.05e9);
  EXPECT_NEAR(static_cast<double>(active_parameters(s)), 3.35e9, 0.05e9);
}

TEST(Parameters, PiecesTileTheParameter) {
  const auto spec = model_spec_from_json(golden_config("qwen3_moe"));
  for (const auto& p : parameters(spec)) {
    for (const auto layout : {ExpertLayout::kFused, ExpertLayout::kPerExpert}) {
      int64_t at = 0;
      for (const auto& piece : p.pieces(layout)) {
        EXPECT_EQ(piece.offset, at) << piece.name;
        int64_t n = 1;
        for (const auto d : piece.shape) n *= d;
        at += n;
      }
      EXPECT_EQ(at, p.num_elements()) << p.name;
    }
  }
}

}  // namespace
}  // namespace keel
