#include "keel/spec/model_dir.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "keel/base/test_data.h"
#include "keel/io/half.h"
#include "keel/io/json_file.h"
#include "keel/io/test_util.h"
#include "keel/spec/model_name.h"
#include "keel/spec/tokenizer_check.h"

namespace keel {
namespace {

namespace fs = std::filesystem;
using test::fault_of;
using test::golden;
using test::TempFolder;
using test::write_bytes;

TEST(ModelDir, GoldenFoldersAreGood) {
  for (const std::string m : {"llama3", "qwen2_bf16", "qwen3_tied", "qwen3_tied_lmhead",
                              "qwen3_untied_sharded", "qwen3_moe", "qwen3_moe_fused"}) {
    for (const auto& f : check_model_dir(golden("models/" + m), {true, true})) {
      ADD_FAILURE() << m << ": " << f.kind << " " << f.line();
    }
  }
}

TEST(ModelDir, OtherModelsAreRefusedByName) {
  for (const std::string m : {"qwen3_next", "qwen3_reward"}) {
    EXPECT_EQ(fault_of([&] { ModelDir(golden("models/" + m)); }), "unsupported_model") << m;
  }
}

TEST(ModelDir, FusedAndPerExpertReadTheSame) {
  const ModelDir a(golden("models/qwen3_moe")), b(golden("models/qwen3_moe_fused"));
  EXPECT_EQ(a.expert_layout(), ExpertLayout::kPerExpert);
  EXPECT_EQ(b.expert_layout(), ExpertLayout::kFused);
  ASSERT_EQ(a.params().size(), b.params().size());
  for (size_t i = 0; i < a.params().size(); ++i) {
    ASSERT_EQ(a.params()[i].name, b.params()[i].name);
    std::vector<float> x(static_cast<size_t>(a.params()[i].num_elements())), y(x.size());
    a.read_f32(i, x);
    b.read_f32(i, y);
    EXPECT_EQ(x, y) << a.params()[i].name;
  }
}

TEST(ModelDir, TiedHeadIsKnown) {
  EXPECT_FALSE(ModelDir(golden("models/qwen3_tied")).has_tied_head());
  EXPECT_TRUE(ModelDir(golden("models/qwen3_tied_lmhead")).has_tied_head());
}

TEST(ModelDir, ReadsAnyDtype) {
  const ModelDir m(golden("models/qwen2_bf16"));
  const size_t n = static_cast<size_t>(m.params()[0].num_elements());
  std::vector<float> f32(n);
  std::vector<uint16_t> bf16(n), f16(n);
  m.read_f32(0, f32);
  m.read(0, DType::kBF16, std::as_writable_bytes(std::span(bf16)));
  m.read(0, DType::kF16, std::as_writable_bytes(std::span(f16)));
  EXPECT_EQ(m.stored_dtype(0), DType::kBF16);
  for (size_t i = 0; i < n; ++i) {
    EXPECT_EQ(bf16_to_f32(bf16[i]), f32[i]);
    EXPECT_EQ(f16[i], f32_to_f16(f32[i]));
  }
}

TEST(ModelDir, ErrorsNameTheFolderAndCount) {
  TempFolder t;
  fs::copy(golden("models/qwen3_tied"), t.file("m"));
  Json config = read_json_file(t.file("m/config.json"));
  config["num_hidden_layers"] = 3;
  config["vocab_size"] = 480;
  write_bytes(t.file("m/config.json"), config.dump());
  try {
    ModelDir m(t.file("m"));
    FAIL();
  } catch (const FileError& e) {
    const std::string line = e.what();
    EXPECT_TRUE(line.starts_with("[" + t.file("m"))) << line;
    EXPECT_TRUE(line.ends_with("(and 1 more)")) << line;
  }
  EXPECT_EQ(fault_of([&] { ModelDir m(t.file("none")); }), "missing_file");
}

TEST(TemplateBlocks, FindsWhatIsOpen) {
  EXPECT_EQ(check_template_blocks("{% for m in x %}{{ '%}' + m }}{%- endfor -%}{# {% if #}"), "");
  EXPECT_EQ(check_template_blocks("{% set x = 1 %}{% set y %}a{% endset %}{% if a %}{% elif b %}"
                                  "{% else %}{% endif %}"),
            "");
  EXPECT_NE(check_template_blocks("{% for m in x %}"), "");
  EXPECT_NE(check_template_blocks("{% if m %}{% endfor %}"), "");
  EXPECT_NE(check_template_blocks("{% endif %}"), "");
  EXPECT_NE(check_template_blocks("{{ a "), "");
  EXPECT_NE(check_template_blocks("{% else %}"), "");
}

class ModelName : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("HF_HUB_CACHE", cache_.path().c_str(), 1);
    fs::create_directories(cache_.file("models--org--name/snapshots/abc123"));
  }
  void TearDown() override { ::unsetenv("HF_HUB_CACHE"); }
  TempFolder cache_;
};

TEST_F(ModelName, FindsTheSnapshotOfMain) {
  const std::string root = cache_.file("models--org--name");
  EXPECT_EQ(resolve_model("org/name"), root + "/snapshots/abc123");  // the only one
  fs::create_directories(root + "/snapshots/def456");
  EXPECT_EQ(fault_of([] { resolve_model("org/name"); }), "missing_file");
  fs::create_directories(root + "/refs");
  write_bytes(root + "/refs/main", "def456");
  EXPECT_EQ(resolve_model("org/name"), root + "/snapshots/def456");
}

TEST_F(ModelName, PathsComeFirst) {
  EXPECT_EQ(resolve_model(golden("models/llama3")), golden("models/llama3"));
  EXPECT_EQ(fault_of([] { resolve_model(golden("README.md")); }), "wrong_type");
}

TEST_F(ModelName, SaysHowToDownload) {
  try {
    resolve_model("org/other");
    FAIL();
  } catch (const FileError& e) {
    EXPECT_NE(std::string(e.what()).find("try: hf download org/other"), std::string::npos);
  }
  EXPECT_EQ(fault_of([] { resolve_model("/no/such/folder"); }), "missing_file");
}

}  // namespace
}  // namespace keel
