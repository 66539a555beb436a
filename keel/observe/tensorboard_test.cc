#include "keel/observe/tensorboard.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>

#include "keel/base/env.h"
#include "keel/base/json.h"
#include "keel/io/test_util.h"
#include "keel/observe/wire/crc32c.h"

namespace keel {
namespace {

using test::read_bytes;
using test::TempFolder;

uint64_t read_little_endian(std::string_view bytes) {
  uint64_t v = 0;
  for (size_t i = bytes.size(); i-- > 0;) v = v << 8 | static_cast<uint8_t>(bytes[i]);
  return v;
}

// The payloads of a TFRecord file; checks both checksums of each frame.
std::vector<std::string> read_frames(const std::string& file) {
  std::vector<std::string> frames;
  std::string_view rest = file;
  while (!rest.empty()) {
    const auto length_bytes = rest.substr(0, 8);
    const auto length = read_little_endian(length_bytes);
    EXPECT_EQ(read_little_endian(rest.substr(8, 4)), wire::masked_crc32c(length_bytes));
    const auto body = rest.substr(12, length);
    EXPECT_EQ(body.size(), length);
    EXPECT_EQ(read_little_endian(rest.substr(12 + length, 4)), wire::masked_crc32c(body));
    frames.emplace_back(body);
    rest.remove_prefix(16 + length);
  }
  return frames;
}

// Decodes one level of a message: field number -> raw values (varints and fixed as 8 or 4 bytes).
std::multimap<int, std::string> decode(std::string_view m) {
  std::multimap<int, std::string> fields;
  const auto varint = [&] {
    uint64_t v = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<uint8_t>(m.at(0));
      m.remove_prefix(1);
      v |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return v;
    }
  };
  while (!m.empty()) {
    const auto key = varint();
    const int type = static_cast<int>(key & 7);
    size_t size = type == 1 ? 8 : 4;
    if (type == 0) {
      std::string raw(8, '\0');
      const auto v = varint();
      std::memcpy(raw.data(), &v, 8);
      fields.emplace(static_cast<int>(key >> 3), raw);
      continue;
    }
    if (type == 2) size = varint();
    fields.emplace(static_cast<int>(key >> 3), m.substr(0, size));
    m.remove_prefix(size);
  }
  return fields;
}

StepRecord sample_record(int64_t step) {
  StepRecord r(step);
  r.set("critic/rewards/mean", 0.25 * static_cast<double>(step));
  r.set("actor/lr", 1e-5);
  r.set_histogram("response_length", make_histogram(std::vector<double>{1, 2, 2, 9}, 4));
  return r;
}

TEST(Crc32c, KnownVectors) {
  // RFC 3720, B.4.
  EXPECT_EQ(wire::crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(wire::crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(wire::crc32c("123456789"), 0xe3069283u);
}

TEST(TensorBoard, FramesHoldTheEvents) {
  const TempFolder folder;
  TensorBoardWriter writer(folder.path());
  writer.add(sample_record(3));
  const auto frames = read_frames(read_bytes(writer.path()));
  ASSERT_EQ(frames.size(), 2);
  EXPECT_EQ(decode(frames[0]).find(3)->second, "brain.Event:2");
  const auto event = decode(frames[1]);
  EXPECT_EQ(read_little_endian(event.find(2)->second), 3);
  const auto summary = decode(event.find(5)->second);
  ASSERT_EQ(summary.count(1), 3);
  auto value = summary.equal_range(1).first;
  const auto reward = decode(value->second);
  EXPECT_EQ(reward.find(1)->second, "critic/rewards/mean");
  EXPECT_EQ(std::bit_cast<float>(static_cast<uint32_t>(read_little_endian(reward.find(2)->second))),
            0.75f);
  std::advance(value, 2);
  const auto histogram = decode(decode(value->second).find(5)->second);
  EXPECT_EQ(std::bit_cast<double>(read_little_endian(histogram.find(3)->second)), 4);
  EXPECT_EQ(std::bit_cast<double>(read_little_endian(histogram.find(4)->second)), 14);
  EXPECT_EQ(histogram.find(6)->second.size(), 5 * 8);
  EXPECT_EQ(histogram.find(7)->second.size(), 5 * 8);
}

// Reads the folder with TensorBoard's own loader and prints what it understood as JSON.
constexpr char kReaderScript[] = R"py(
import json, sys
from tensorboard.backend.event_processing import event_accumulator as ea
acc = ea.EventAccumulator(sys.argv[1], size_guidance={k: 0 for k in (
    ea.SCALARS, ea.HISTOGRAMS, ea.COMPRESSED_HISTOGRAMS, ea.TENSORS)})
acc.Reload()
tags = acc.Tags()
h = acc.Histograms("response_length")[-1].histogram_value
print(json.dumps({
  "scalars": {t: [[e.step, e.value] for e in acc.Scalars(t)] for t in tags["scalars"]},
  "histogram": {"min": h.min, "max": h.max, "num": h.num, "sum": h.sum,
                "limits": list(h.bucket_limit), "buckets": list(h.bucket)},
  "texts": {t: [[e.step, e.tensor_proto.string_val[0].decode()] for e in acc.Tensors(t)]
            for t in tags["tensors"]},
}))
)py";

TEST(TensorBoard, RealReaderUnderstandsAndForgetsStepsAfterAResume) {
  const auto python = env("KEEL_TEST_PYTHON").value_or("python3");
  if (std::system((python + " -c 'import tensorboard' 2>/dev/null").c_str()) != 0) {
    GTEST_SKIP() << python << " has no tensorboard (set KEEL_TEST_PYTHON)";
  }
  const TempFolder folder;
  const auto runs = folder.file("run");
  std::filesystem::create_directory(runs);
  {
    TensorBoardWriter writer(runs);
    for (int step = 1; step <= 4; ++step) writer.add(sample_record(step));
  }
  // File names carry seconds and a counter; readers take them in the order of their names.
  TensorBoardWriter resumed(runs, 2);
  resumed.add(sample_record(3));
  resumed.add_text(3, "samples/best", "2 + 2 = **4**\n\nscore 1");

  test::write_bytes(folder.file("read.py"), kReaderScript);
  const auto command = python + " " + folder.file("read.py") + " " + runs + " > " +
                       folder.file("out.json") + " 2> " + folder.file("err.txt");
  ASSERT_EQ(std::system(command.c_str()), 0) << read_bytes(folder.file("err.txt"));
  const auto seen = Json::parse(read_bytes(folder.file("out.json")));
  EXPECT_EQ(seen["scalars"]["critic/rewards/mean"], Json::parse("[[1,0.25],[2,0.5],[3,0.75]]"));
  EXPECT_EQ(seen["scalars"].size(), 2);
  EXPECT_EQ(seen["histogram"]["num"], 4);
  EXPECT_EQ(seen["histogram"]["sum"], 14);
  EXPECT_EQ(seen["histogram"]["buckets"], Json::parse("[0,3,0,0,1]"));
  EXPECT_EQ(seen["texts"]["samples/best"], Json::parse(R"([[3,"2 + 2 = **4**\n\nscore 1"]])"));
}

TEST(TensorBoard, MissingFolderIsAnError) {
  EXPECT_EQ(test::fault_of([] { TensorBoardWriter writer("/no/such/folder"); }), "missing_file");
}

}  // namespace
}  // namespace keel
