#include "keel/observe/wire/proto_writer.h"

#include <bit>

namespace keel::wire {
namespace {

constexpr int kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5;

}  // namespace

std::string little_endian(uint64_t value, int num_bytes) {
  std::string out;
  for (int i = 0; i < num_bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
  return out;
}

void ProtoWriter::raw_varint(uint64_t value) {
  for (; value >= 0x80; value >>= 7) out_ += static_cast<char>((value & 0x7f) | 0x80);
  out_ += static_cast<char>(value);
}

void ProtoWriter::tag(int field, int wire_type) {
  raw_varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire_type));
}

void ProtoWriter::varint(int field, uint64_t value) {
  tag(field, kVarint);
  raw_varint(value);
}

void ProtoWriter::fixed_double(int field, double value) {
  tag(field, kFixed64);
  out_ += little_endian(std::bit_cast<uint64_t>(value), 8);
}

void ProtoWriter::fixed_float(int field, float value) {
  tag(field, kFixed32);
  out_ += little_endian(std::bit_cast<uint32_t>(value), 4);
}

void ProtoWriter::bytes(int field, std::string_view value) {
  tag(field, kLengthDelimited);
  raw_varint(value.size());
  out_ += value;
}

void ProtoWriter::packed_doubles(int field, std::span<const double> values) {
  std::string body;
  for (const double v : values) body += little_endian(std::bit_cast<uint64_t>(v), 8);
  bytes(field, body);
}

}  // namespace keel::wire
