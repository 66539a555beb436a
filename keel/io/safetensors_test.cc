#include "keel/io/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "keel/base/rng.h"
#include "keel/base/test_data.h"
#include "keel/io/half.h"
#include "keel/io/test_util.h"

namespace keel {
namespace {

using test::fault_of;
using test::read_bytes;
using test::TempFolder;
using test::write_bytes;

std::string container(const std::string& header, const std::string& data) {
  const uint64_t n = header.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &n, 8);
  return out + header + data;
}

std::string fault_of_bytes(const TempFolder& t, const std::string& bytes) {
  write_bytes(t.file("f.safetensors"), bytes);
  return fault_of([&] { SafetensorsFile(t.file("f.safetensors")); });
}

TEST(Safetensors, ReadsGolden) {
  const SafetensorsFile f(test::golden("models/qwen2_bf16/model.safetensors"));
  const auto* t = f.find("model.layers.1.self_attn.k_proj.bias");
  ASSERT_NE(t, nullptr);
  EXPECT_EQ(t->dtype, DType::kBF16);
  EXPECT_EQ(t->shape, std::vector<int64_t>{16});
  EXPECT_EQ(f.bytes(*t).size(), 32u);
  EXPECT_EQ(f.metadata().at("format"), "pt");
  EXPECT_EQ(f.find("nothing"), nullptr);
}

TEST(Safetensors, RoundTripOfGoldenIsEqual) {
  TempFolder t;
  const SafetensorsFile in(test::golden("optim/tensors.safetensors"));
  std::vector<SafetensorsDecl> decls;
  for (const auto& x : in.tensors()) decls.push_back({x.name, x.dtype, x.shape});
  SafetensorsWriter w(t.file("out"), decls, in.metadata());
  for (const auto& x : in.tensors()) {
    const auto bytes = in.bytes(x);
    const size_t half = bytes.size() / 2;
    w.write(x.name, bytes.subspan(0, half));
    w.write(x.name, bytes.subspan(half));
  }
  w.commit();
  const SafetensorsFile out(t.file("out"));
  ASSERT_EQ(out.tensors().size(), in.tensors().size());
  for (const auto& x : in.tensors()) {
    const auto* y = out.find(x.name);
    ASSERT_NE(y, nullptr);
    EXPECT_EQ(y->dtype, x.dtype);
    EXPECT_EQ(y->shape, x.shape);
    EXPECT_TRUE(std::ranges::equal(out.bytes(*y), in.bytes(x))) << x.name;
  }
  EXPECT_EQ(w.checksum(), checksum_file(t.file("out")));
}

TEST(Safetensors, ScalarsAndEmptyTensors) {
  TempFolder t;
  SafetensorsWriter w(
      t.file("f"),
      {{"none", DType::kF32, {0, 5}}, {"scalar", DType::kI64, {}}, {"last", DType::kF32, {2, 0}}});
  const int64_t value = 42;
  w.write("scalar", std::as_bytes(std::span(&value, 1)));
  w.commit();
  const SafetensorsFile f(t.file("f"));
  EXPECT_EQ(f.bytes(*f.find("scalar")).size(), 8u);
  EXPECT_EQ(f.bytes(*f.find("last")).size(), 0u);
  EXPECT_EQ(f.find("scalar")->begin % 64, 0u);
}

TEST(Safetensors, WriterMisuseIsABug) {
  TempFolder t;
  SafetensorsWriter w(t.file("f"), {{"a", DType::kF32, {1}}, {"b", DType::kF32, {1}}});
  const float x[2] = {1, 2};
  const auto one = std::as_bytes(std::span(x, 1)), two = std::as_bytes(std::span(x, 2));
  EXPECT_THROW(w.write("b", one), InternalError);
  EXPECT_THROW(w.write("a", two), InternalError);
  w.write("a", one);
  EXPECT_THROW(w.commit(), InternalError);
}

TEST(Safetensors, Refuses) {
  TempFolder t;
  const std::string data(16, '\1');
  const auto one = [](const std::string& body) { return "{\"a\": " + body + "}"; };
  const auto tensor = [&](const std::string& dtype, const std::string& shape,
                          const std::string& offsets) {
    return one("{\"dtype\": \"" + dtype + "\", \"shape\": " + shape +
               ", \"data_offsets\": " + offsets + "}");
  };
  const std::string good = tensor("F32", "[4]", "[0, 16]");
  const std::string a = "\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}";
  const std::string b = "\"b\": {\"dtype\": \"F32\", \"shape\": [3], \"data_offsets\": [4, 16]}";
  const struct {
    const char* fault;
    std::string bytes;
  } cases[] = {
      {"", container(good, data)},
      {"empty_file", ""},
      {"file_truncated", "12345"},
      {"file_truncated", container(good, data.substr(1))},
      {"file_truncated", container(good, data).substr(0, 20)},
      {"trailing_data", container(good, data + "x")},
      {"bad_header", std::string("\0\0\0\0\0\0\0\x40xxxx", 12)},
      {"bad_header", container("{" + a + ", " + a + "}", data.substr(8))},
      {"bad_header", container("[1, 2]", "")},
      {"bad_header", container("{\"a\": 3}", "")},
      {"bad_header", container(std::string(5000, '['), "")},
      {"bad_header", container(tensor("F32", "[1e999]", "[0, 16]"), data)},
      {"bad_header", container(tensor("F32", "[-4]", "[0, 16]"), data)},
      {"bad_header", container(tensor("F32", "[4.0]", "[0, 16]"), data)},
      {"bad_header", container("{\"__metadata__\": {\"a\": 1}}", "")},
      {"overlap", container("{" + a + ", " + b + "}", data)},
      {"bad_dtype", container(tensor("F24", "[4]", "[0, 16]"), data)},
      {"bad_offsets", container(tensor("F32", "[4]", "[16, 0]"), data)},
      {"bad_offsets", container(tensor("F32", "[4]", "[-8, 8]"), data)},
      {"bad_offsets", container(tensor("F32", "[8]", "[0, 16]"), data)},
      {"bad_offsets", container(tensor("F32", "[8589934592, 8589934592]", "[0, 0]"), "")},
      {"bad_offsets", container(tensor("F32", "[3]", "[4, 16]"), data)},
      {"wrong_format", "PK\x03\x04 a zip file"},
      {"lfs_pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"},
  };
  for (const auto& c : cases) EXPECT_EQ(fault_of_bytes(t, c.bytes), c.fault) << c.bytes;
}

TEST(Safetensors, RandomDamageNeverCrashes) {
  TempFolder t;
  const std::string good = read_bytes(test::golden("models/qwen2_bf16/model.safetensors"));
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, good.data(), 8);
  int refused = 0;
  for (uint64_t i = 0; i < 600; ++i) {
    std::string bad = good;
    const uint64_t changes = 1 + uniform_int(4, 1, i, 0);
    for (uint64_t k = 0; k < changes; ++k) {
      const auto at = uniform_int(8 + header_bytes, 2, i, k);
      bad[at] = static_cast<char>(uniform_int(256, 3, i, k));
    }
    if (i % 5 == 0) bad.resize(uniform_int(bad.size(), 4, i));
    write_bytes(t.file("f"), bad);
    try {
      const SafetensorsFile f(t.file("f"));
      for (const auto& x : f.tensors()) EXPECT_EQ(f.bytes(x).size(), x.end - x.begin);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 400);
}

}  // namespace
}  // namespace keel
