// A frozen string -> id map, made for short keys and many lookups.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// Not a cryptographic hash: two multiplications over at most 16 bytes at a time.
inline uint64_t hash_bytes(const char* p, size_t n) {
  constexpr uint64_t kA = 0x9E3779B97F4A7C15ull, kB = 0xD6E8FEB86659FD93ull;
  const auto load8 = [](const char* q) {
    uint64_t v;
    std::memcpy(&v, q, 8);
    return v;
  };
  const auto load4 = [](const char* q) {
    uint32_t v;
    std::memcpy(&v, q, 4);
    return static_cast<uint64_t>(v);
  };
  uint64_t h = n * kA;
  while (n > 16) {
    h = (h ^ load8(p)) * kB;
    h = (h ^ h >> 32 ^ load8(p + 8)) * kA;
    p += 16;
    n -= 16;
  }
  uint64_t a = 0, b = 0;
  if (n >= 8) {
    a = load8(p);
    b = load8(p + n - 8);
  } else if (n >= 4) {
    a = load4(p);
    b = load4(p + n - 4);
  } else if (n > 0) {
    const auto byte = [&](size_t i) { return static_cast<uint64_t>(static_cast<uint8_t>(p[i])); };
    a = byte(0) | byte(n / 2) << 8 | byte(n - 1) << 16;
  }
  h = (h ^ a) * kB;
  h = (h ^ h >> 29 ^ b) * kA;
  return h ^ h >> 32;
}

class Vocabulary {
 public:
  // Ids are the user's; a later pair with the same key wins.
  void build(const std::vector<std::pair<std::string, int32_t>>& entries) {
    size_t slots = 16;
    while (slots < entries.size() * 2) slots *= 2;
    slots_.assign(slots, Slot{});
    mask_ = slots - 1;
    for (const auto& [key, id] : entries) {
      const uint64_t h = hash_bytes(key.data(), key.size());
      size_t i = h & mask_;
      while (slots_[i].id >= 0 && !equal(slots_[i], h, key)) i = (i + 1) & mask_;
      slots_[i] = {static_cast<uint32_t>(h >> 32), static_cast<uint32_t>(key.size()),
                   static_cast<uint32_t>(bytes_.size()), id};
      bytes_ += key;
    }
  }

  // The id of `key`, or -1.
  int32_t find(std::string_view key) const {
    if (slots_.empty()) return -1;
    const uint64_t h = hash_bytes(key.data(), key.size());
    for (size_t i = h & mask_; slots_[i].id >= 0; i = (i + 1) & mask_) {
      if (equal(slots_[i], h, key)) return slots_[i].id;
    }
    return -1;
  }

 private:
  struct Slot {
    uint32_t tag = 0;
    uint32_t num_bytes = 0;
    uint32_t offset = 0;
    int32_t id = -1;
  };

  bool equal(const Slot& slot, uint64_t h, std::string_view key) const {
    return slot.tag == static_cast<uint32_t>(h >> 32) && slot.num_bytes == key.size() &&
           std::memcmp(bytes_.data() + slot.offset, key.data(), key.size()) == 0;
  }

  std::vector<Slot> slots_;
  std::string bytes_;
  size_t mask_ = 0;
};

}  // namespace keel
