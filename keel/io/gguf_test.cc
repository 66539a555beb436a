#include "keel/io/gguf.h"

#include <gtest/gtest.h>

#include <cmath>

#include "keel/base/rng.h"
#include "keel/io/gguf_test_writer.h"
#include "keel/io/test_util.h"

namespace keel {
namespace {

using test::fault_of;
using test::GgufWriter;
using test::TempFolder;
using test::write_bytes;

// 256 values of made-up blocks with scale 0.1 (and minimum -0.2); the expected values were computed
// by the Python package `gguf` 0.19.
struct QuantCase {
  GgmlType type;
  size_t block_bytes;
  std::vector<size_t> f16_at;
  std::vector<float> values;  // at kAt
  double sum_of_magnitudes;
};
constexpr size_t kAt[] = {0, 1, 17, 40, 100, 200, 255};

const std::vector<QuantCase> kQuantCases = {
    {GgmlType::kQ4_0,
     18,
     {0},
     {-0.299926758f, 0.199951172f, -0.0999755859f, 0.699829102f, -0.0999755859f, 0.599853516f,
      -0.49987793f},
     100.0755615234375},
    {GgmlType::kQ4_1,
     20,
     {0, 2},
     {1.29968262f, 0.199951172f, 0.999755859f, 0.0999755859f, 0.799804688f, -0.199951172f,
      0.599853516f},
     153.0626220703125},
    {GgmlType::kQ5_0,
     22,
     {0},
     {0.899780273f, -1.19970703f, 0.0999755859f, -0.299926758f, 0.799804688f, 0.199951172f,
      1.3996582f},
     193.8526611328125},
    {GgmlType::kQ5_1,
     24,
     {0, 2},
     {2.29943848f, 2.79931641f, 0.299926758f, -0.0999755859f, 0.49987793f, 1.79956055f,
      1.79956055f},
     348.114990234375},
    {GgmlType::kQ8_0,
     34,
     {0},
     {8.4979248f, 12.1970215f, -4.19897461f, -11.6971436f, 0.599853516f, -7.7980957f, 3.59912109f},
     1676.590576171875},
    {GgmlType::kQ4_K,
     144,
     {0, 2},
     {33.0919189f, 48.5881348f, 36.1911621f, 9.59765625f, 29.9926758f, 61.4849854f, 7.7980957f},
     7594.9453125},
    {GgmlType::kQ5_K,
     176,
     {0, 2},
     {73.3820801f, 42.3896484f, 29.9926758f, 7.99804688f, 21.9946289f, 43.1894531f, 13.1967773f},
     13888.708374023438},
    {GgmlType::kQ6_K,
     210,
     {208},
     {307.724854f, -182.355469f, 41.9897461f, -6.79833984f, 42.989502f, 57.9858398f, 26.0936279f},
     28891.444702148438},
};

std::string made_up_blocks(const QuantCase& c) {
  const auto info = *ggml_type_info(static_cast<uint32_t>(c.type));
  const size_t blocks = 256 / static_cast<size_t>(info.block_elements);
  std::string bytes(blocks * c.block_bytes, '\0');
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>((i * 37 + 11 + i / 7) % 251);
  for (size_t b = 0; b < blocks; ++b) {
    for (size_t k = 0; k < c.f16_at.size(); ++k) {
      const size_t at = b * c.block_bytes + c.f16_at[k];
      bytes[at] = '\x66';
      bytes[at + 1] = k == 0 ? '\x2E' : '\xB2';
    }
  }
  return bytes;
}

TEST(Dequantize, EqualsTheReferenceImplementation) {
  for (const auto& c : kQuantCases) {
    const auto info = *ggml_type_info(static_cast<uint32_t>(c.type));
    EXPECT_EQ(static_cast<size_t>(info.block_bytes), c.block_bytes);
    const std::string bytes = made_up_blocks(c);
    std::vector<float> out(256);
    dequantize(c.type, std::as_bytes(std::span(bytes)), out);
    double sum = 0;
    for (const float x : out) sum += std::abs(static_cast<double>(x));
    EXPECT_NEAR(sum, c.sum_of_magnitudes, 1e-9 * c.sum_of_magnitudes) << info.name;
    for (size_t i = 0; i < std::size(kAt); ++i) {
      EXPECT_FLOAT_EQ(out[kAt[i]], c.values[i]) << info.name << " " << kAt[i];
    }
  }
}

std::string small_file(uint32_t version = 3) {
  GgufWriter w(version);
  w.text("general.architecture", "llama");
  w.u32("llama.block_count", 2);
  w.f32("llama.eps", 0.5f);
  w.boolean("flag", true);
  w.texts("tokens", {"a", "b", ""});
  w.i32s("types", {1, -3});
  w.f32s("scores", {0.5f, -1.0f});
  w.f32_tensor("x", {2, 3}, {1, 2, 3, 4, 5, 6});
  w.tensor("q", 12, {1, 256}, made_up_blocks(kQuantCases[5]));
  return w.bytes();
}

TEST(Gguf, ReadsValuesAndTensors) {
  TempFolder t;
  for (const uint32_t version : {2u, 3u}) {
    write_bytes(t.file("f"), small_file(version));
    const GgufFile f(t.file("f"));
    EXPECT_EQ(f.version(), static_cast<int>(version));
    EXPECT_EQ(f.text("general.architecture"), "llama");
    EXPECT_EQ(f.integer("llama.block_count"), 2);
    EXPECT_EQ(f.integer("absent", 7), 7);
    EXPECT_EQ(f.number("llama.eps"), 0.5);
    EXPECT_TRUE(f.boolean("flag", false));
    EXPECT_EQ(f.texts("tokens"), (std::vector<std::string>{"a", "b", ""}));
    EXPECT_EQ(f.integers("types"), (std::vector<int64_t>{1, -3}));
    EXPECT_EQ(f.numbers("scores"), (std::vector<double>{0.5, -1.0}));
    const auto* x = f.find("x");
    ASSERT_NE(x, nullptr);
    EXPECT_EQ(x->shape, (std::vector<int64_t>{2, 3}));
    std::vector<float> out(6), q(256);
    f.read_f32(*x, out);
    EXPECT_EQ(out, (std::vector<float>{1, 2, 3, 4, 5, 6}));
    f.read_f32(*f.find("q"), q);
    EXPECT_FLOAT_EQ(q[0], kQuantCases[5].values[0]);
    EXPECT_EQ(fault_of([&] { f.integer("absent"); }), "missing_field");
    EXPECT_EQ(fault_of([&] { f.text("llama.block_count"); }), "wrong_type");
  }
}

std::string gguf_fault(const TempFolder& t, const std::string& bytes) {
  write_bytes(t.file("f"), bytes);
  return fault_of([&] { GgufFile(t.file("f")); });
}

TEST(Gguf, Refuses) {
  TempFolder t;
  const std::string good = small_file();
  EXPECT_EQ(gguf_fault(t, good), "");
  EXPECT_EQ(gguf_fault(t, ""), "empty_file");
  EXPECT_EQ(gguf_fault(t, "GGU"), "file_truncated");
  EXPECT_EQ(gguf_fault(t, "GGML" + good.substr(4)), "wrong_format");
  EXPECT_EQ(gguf_fault(t, small_file(1)), "wrong_format");
  EXPECT_EQ(gguf_fault(t, good.substr(0, good.size() / 2)), "file_truncated");
  EXPECT_EQ(gguf_fault(t, good.substr(0, good.size() - 32)), "file_truncated");
  std::string huge = good;
  huge[15] = '\x7F';  // tensor count
  EXPECT_EQ(gguf_fault(t, huge), "file_truncated");

  const auto with = [&](auto fill) {
    GgufWriter w;
    fill(w);
    return gguf_fault(t, w.bytes());
  };
  EXPECT_EQ(with([](auto& w) { w.u32("a", 1), w.u32("a", 2); }), "bad_header");
  EXPECT_EQ(with([](auto& w) { w.entry("a", 99, "xxxx"); }), "bad_header");
  EXPECT_EQ(with([](auto& w) { w.entry("a", 10, std::string(8, '\xFF')); }), "bad_header");
  EXPECT_EQ(with([](auto& w) { w.u32("general.alignment", 0); }), "bad_header");
  EXPECT_EQ(with([](auto& w) { w.tensor("a", 20, {32}, std::string(18, 'x')); }), "bad_dtype");
  EXPECT_EQ(with([](auto& w) { w.tensor("a", 2, {33}, std::string(36, 'x')); }), "bad_header");
  EXPECT_EQ(with([](auto& w) { w.tensor("a", 0, {1, 1, 1, 1, 1}, "xxxx"); }), "bad_header");
  EXPECT_EQ(with([](auto& w) {
              w.tensor("a", 0, {uint64_t{1} << 33, uint64_t{1} << 33}, "");
            }),
            "bad_header");
  EXPECT_EQ(with([](auto& w) {
              w.tensor("a", 0, {1}, "");
              w.tensor("b", 0, {9}, std::string(64, 'x'));
            }),
            "overlap");
}

TEST(Gguf, RandomDamageNeverCrashes) {
  TempFolder t;
  const std::string good = small_file();
  int refused = 0;
  for (uint64_t i = 0; i < 600; ++i) {
    std::string bad = good;
    for (uint64_t k = 0; k <= i % 4; ++k) {
      bad[uniform_int(bad.size() - 200, 1, i, k)] = static_cast<char>(uniform_int(256, 2, i, k));
    }
    if (i % 7 == 0) bad.resize(uniform_int(bad.size(), 3, i));
    write_bytes(t.file("f"), bad);
    try {
      const GgufFile f(t.file("f"));
      for (const auto& x : f.tensors()) {
        int64_t n = 1;
        for (const auto d : x.shape) n *= d;
        std::vector<float> out(static_cast<size_t>(n));
        f.read_f32(x, out);
      }
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 150);
}

}  // namespace
}  // namespace keel
