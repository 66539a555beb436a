#include "keel/data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "keel/base/error.h"

namespace keel {
namespace {

std::vector<int64_t> take(Sampler& s, std::initializer_list<int64_t> chunks) {
  std::vector<int64_t> out;
  for (const auto n : chunks) {
    const auto part = s.next(n);
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

TEST(Sampler, OrderDoesNotDependOnChunks) {
  Sampler a(10, 1, {.seed = 7}), b(10, 1, {.seed = 7});
  EXPECT_EQ(take(a, {25}), take(b, {3, 1, 9, 12}));
}

TEST(Sampler, EachEpochHasEachRowOnceInItsOwnOrder) {
  Sampler s(100, 1, {.seed = 7});
  auto first = s.next(100), second = s.next(100);
  EXPECT_NE(first, second);
  for (auto* e : {&first, &second}) {
    std::sort(e->begin(), e->end());
    for (int64_t i = 0; i < 100; ++i) EXPECT_EQ((*e)[static_cast<size_t>(i)], i);
  }
  EXPECT_NE(epoch_order(100, 7, 0, true), epoch_order(100, 8, 0, true));
}

TEST(Sampler, DropLastLeavesTheRestOut) {
  Sampler s(10, 1, {.seed = 7, .shuffle = false, .drop_last = true});
  s.next(4);
  s.next(4);
  EXPECT_EQ(s.next(4), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(s.epoch(), 1);
  EXPECT_THROW(s.next(11), Error);
}

TEST(Sampler, ResumesWhereItWasCut) {
  Sampler straight(10, 1, {.seed = 7});
  take(straight, {23});
  Sampler cut(10, 1, {.seed = 7});
  take(cut, {23});
  Sampler resumed(10, 1, {.seed = 7});
  ASSERT_TRUE(resumed.restore(Json::parse(cut.state().dump())));
  EXPECT_EQ(straight.next(20), resumed.next(20));
}

TEST(Sampler, SeesAnEditedDataSet) {
  Sampler old(10, 1, {.seed = 7});
  old.next(13);
  Sampler edited(10, 2, {.seed = 7});
  EXPECT_FALSE(edited.restore(old.state()));
  EXPECT_EQ(edited.epoch(), 1);
  EXPECT_EQ(edited.index(), 0);
  EXPECT_THROW((void)edited.restore(Json::parse("{\"epoch\": \"x\"}")), Error);
}

}  // namespace
}  // namespace keel
