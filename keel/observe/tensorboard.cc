#include "keel/observe/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>

#include "keel/io/file_error.h"
#include "keel/observe/wire/crc32c.h"
#include "keel/observe/wire/proto_writer.h"

namespace keel {
namespace {

using wire::ProtoWriter;

// Field numbers of the messages.
namespace event {
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}
namespace session_log {
constexpr int kStatus = 1, kStatusStart = 1;
}
namespace summary {
constexpr int kValue = 1;
}
namespace value {
constexpr int kTag = 1, kSimpleValue = 2, kHisto = 5, kTensor = 8, kMetadata = 9;
}
namespace histo {
constexpr int kMin = 1, kMax = 2, kNum = 3, kSum = 4, kSumSquares = 5, kLimit = 6, kBucket = 7;
}
namespace tensor {
constexpr int kDtype = 1, kDtypeString = 7, kShape = 2, kShapeDim = 2, kDimSize = 1, kString = 8;
}
namespace metadata {
constexpr int kPluginData = 1, kPluginName = 1;
}

double wall_time_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

ProtoWriter event_at(int64_t step) {
  ProtoWriter e;
  e.fixed_double(event::kWallTime, wall_time_s());
  e.varint(event::kStep, static_cast<uint64_t>(step));
  return e;
}

std::string new_file_name() {
  static std::atomic<int> counter = 0;
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  const auto seconds = static_cast<int64_t>(wall_time_s());
  return fmt::format("events.out.tfevents.{}.{}.{}.{}", seconds, host, ::getpid(), counter++);
}

ProtoWriter histogram_message(const Histogram& h) {
  ProtoWriter m;
  m.fixed_double(histo::kMin, h.min);
  m.fixed_double(histo::kMax, h.max);
  m.fixed_double(histo::kNum, static_cast<double>(h.count()));
  m.fixed_double(histo::kSum, h.sum);
  m.fixed_double(histo::kSumSquares, h.sum_squares);
  // A bucket is named by its upper limit; an empty first one gives the lower edge of the data.
  std::vector<double> limits(h.edges), buckets;
  if (!h.edges.empty()) buckets.push_back(0);
  for (const int64_t c : h.counts) buckets.push_back(static_cast<double>(c));
  // The last limit is exclusive for readers, the last edge here is not.
  if (!limits.empty()) limits.back() = std::nextafter(limits.back(), HUGE_VAL);
  m.packed_doubles(histo::kLimit, limits);
  m.packed_doubles(histo::kBucket, buckets);
  return m;
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(const std::string& folder, std::optional<int64_t> resume_step)
    : path_(folder + "/" + new_file_name()), file_(std::fopen(path_.c_str(), "wb")) {
  if (file_ == nullptr) throw_errno(path_, "create", errno);
  ProtoWriter version;
  version.fixed_double(event::kWallTime, wall_time_s());
  version.bytes(event::kFileVersion, "brain.Event:2");
  write_event(version.str());
  if (resume_step) {
    ProtoWriter start;
    start.varint(session_log::kStatus, session_log::kStatusStart);
    auto e = event_at(*resume_step + 1);
    e.message(event::kSessionLog, start);
    write_event(e.str());
  }
}

void TensorBoardWriter::add(const StepRecord& record) {
  ProtoWriter all;
  for (const auto& [name, number] : record.metrics()) {
    ProtoWriter v;
    v.bytes(value::kTag, name);
    v.fixed_float(value::kSimpleValue, static_cast<float>(number));
    all.message(summary::kValue, v);
  }
  for (const auto& [name, histogram] : record.histograms()) {
    ProtoWriter v;
    v.bytes(value::kTag, name);
    v.message(value::kHisto, histogram_message(histogram));
    all.message(summary::kValue, v);
  }
  auto e = event_at(record.step());
  e.message(event::kSummary, all);
  write_event(e.str());
}

void TensorBoardWriter::add_text(int64_t step, std::string_view tag, std::string_view text) {
  ProtoWriter plugin, meta, dim, shape, content, v, all;
  plugin.bytes(metadata::kPluginName, "text");
  meta.message(metadata::kPluginData, plugin);
  dim.varint(tensor::kDimSize, 1);
  shape.message(tensor::kShapeDim, dim);
  content.varint(tensor::kDtype, tensor::kDtypeString);
  content.message(tensor::kShape, shape);
  content.bytes(tensor::kString, text);
  v.bytes(value::kTag, tag);
  v.message(value::kTensor, content);
  v.message(value::kMetadata, meta);
  all.message(summary::kValue, v);
  auto e = event_at(step);
  e.message(event::kSummary, all);
  write_event(e.str());
}

void TensorBoardWriter::write_event(std::string_view event) {
  const auto length = wire::little_endian(event.size(), 8);
  std::string frame = length + wire::little_endian(wire::masked_crc32c(length), 4);
  frame += event;
  frame += wire::little_endian(wire::masked_crc32c(event), 4);
  const bool written = std::fwrite(frame.data(), 1, frame.size(), file_.get()) == frame.size();
  if (!written || std::fflush(file_.get()) != 0) throw_errno(path_, "write", errno);
}

}  // namespace keel
