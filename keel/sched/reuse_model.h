// What an idle cache block is worth: expected hits for each block-time that it stays, given how
// often it was used and how long ago. Learned online from the ages at which blocks are wanted
// again, kept or not; the index of a block is that of an optimal stopping problem (Gittins 1979),
// so a recurring scan keeps what it holds instead of losing everything just before its use.
// Time is counted in blocks that entered the cache.
#pragma once

#include <array>
#include <cstdint>

namespace keel::sched {

class ReuseModel {
 public:
  static constexpr int32_t kClasses = 4;  // used again 0, 1, 2-3, 4 or more times so far
  static constexpr int32_t kAges = 32;    // quarter octaves from 1/32 of the capacity to 8 times it

  explicit ReuseModel(int32_t capacity_blocks);

  static int32_t class_of(int32_t uses) { return uses < 2 ? uses : uses < 4 ? 2 : 3; }
  int32_t age_class(int64_t age) const;
  // Older than this teaches nothing.
  int64_t max_age() const { return unit_ * 256; }

  void reused(int32_t uses, int64_t age) { reused_[class_of(uses)][age_class(age)] += 1; }

  using Census = std::array<std::array<float, kAges>, kClasses>;
  // unused[c][a]: blocks, kept or evicted, that are of this age now and were not used again.
  void refresh(const Census& unused);

  float index(int32_t uses, int64_t age) const { return index_[class_of(uses)][age_class(age)]; }

 private:
  int64_t unit_;
  Census reused_{};
  Census index_{};
};

}  // namespace keel::sched
