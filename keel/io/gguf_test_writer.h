// Builds small GGUF files in memory, for tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace keel::test {

class GgufWriter {
 public:
  explicit GgufWriter(uint32_t version = 3) : version_(version) {}

  void text(const std::string& key, const std::string& value) { entry(key, 8, sized(value)); }
  void u32(const std::string& key, uint32_t value) { entry(key, 4, raw(value)); }
  void f32(const std::string& key, float value) { entry(key, 6, raw(value)); }
  void boolean(const std::string& key, bool value) { entry(key, 7, raw(uint8_t{value})); }
  void texts(const std::string& key, const std::vector<std::string>& values) {
    std::string body;
    for (const auto& v : values) body += sized(v);
    array(key, 8, values.size(), body);
  }
  void i32s(const std::string& key, const std::vector<int32_t>& values) {
    std::string body;
    for (const auto v : values) body += raw(v);
    array(key, 5, values.size(), body);
  }
  void f32s(const std::string& key, const std::vector<float>& values) {
    std::string body;
    for (const auto v : values) body += raw(v);
    array(key, 6, values.size(), body);
  }
  // Any entry: type number and body as in the file.
  void entry(const std::string& key, uint32_t type, const std::string& body) {
    values_ += sized(key) + raw(type) + body;
    ++num_values_;
  }

  // shape: outermost first; bytes in the format of `type`.
  void tensor(const std::string& name, uint32_t type, std::vector<uint64_t> shape,
              const std::string& bytes) {
    infos_ += sized(name) + raw(static_cast<uint32_t>(shape.size()));
    for (auto it = shape.rbegin(); it != shape.rend(); ++it) infos_ += raw(*it);
    infos_ += raw(type) + raw(uint64_t{data_.size()});
    data_ += bytes;
    data_.resize((data_.size() + 31) / 32 * 32, '\0');
    ++num_tensors_;
  }
  void f32_tensor(const std::string& name, std::vector<uint64_t> shape,
                  const std::vector<float>& values) {
    std::string bytes(values.size() * 4, '\0');
    std::memcpy(bytes.data(), values.data(), bytes.size());
    tensor(name, 0, std::move(shape), bytes);
  }

  std::string bytes() const {
    std::string out = "GGUF" + raw(version_) + raw(num_tensors_) + raw(num_values_);
    out += values_ + infos_;
    out.resize((out.size() + 31) / 32 * 32, '\0');
    return out + data_;
  }

  template <class T>
  static std::string raw(T value) {
    std::string out(sizeof(T), '\0');
    std::memcpy(out.data(), &value, sizeof(T));
    return out;
  }
  static std::string sized(const std::string& s) { return raw(uint64_t{s.size()}) + s; }

 private:
  void array(const std::string& key, uint32_t type, uint64_t count, const std::string& body) {
    entry(key, 9, raw(type) + raw(count) + body);
  }

  uint32_t version_;
  uint64_t num_values_ = 0, num_tensors_ = 0;
  std::string values_, infos_, data_;
};

}  // namespace keel::test
