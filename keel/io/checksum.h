// Fast 64-bit checksum (XXH3) for manifests: finds damaged files, is no protection against
// forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace keel {

uint64_t checksum(std::span<const std::byte> bytes);

// Of a whole file, read through a memory map. Throws FileError.
uint64_t checksum_file(const std::string& path);

// The same value from pieces in order.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;

  void update(std::span<const std::byte> bytes);
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace keel
