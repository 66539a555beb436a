// Just enough protocol-buffer encoding to write messages whose field numbers we know.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace keel::wire {

class ProtoWriter {
 public:
  void varint(int field, uint64_t value);
  void fixed_double(int field, double value);
  void fixed_float(int field, float value);
  void bytes(int field, std::string_view value);  // string, bytes or an encoded message
  void message(int field, const ProtoWriter& inner) { bytes(field, inner.str()); }
  void packed_doubles(int field, std::span<const double> values);

  const std::string& str() const { return out_; }

 private:
  void raw_varint(uint64_t value);
  void tag(int field, int wire_type);
  std::string out_;
};

// `value` as little-endian bytes.
std::string little_endian(uint64_t value, int num_bytes);

}  // namespace keel::wire
