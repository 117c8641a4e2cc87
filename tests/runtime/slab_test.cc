#include "runtime/slab.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace railhop {
namespace {

TEST(SlabTest, AllocatesUpToCapacityAndNoMore) {
  Slab<int> slab(3);
  std::set<uint32_t> indexes;
  for (int i = 0; i < 3; ++i) {
    const SlabHandle handle = slab.Allocate();
    ASSERT_TRUE(handle.valid());
    indexes.insert(handle.index);
  }
  EXPECT_EQ(indexes.size(), 3U);
  EXPECT_EQ(slab.in_use(), 3U);
  EXPECT_FALSE(slab.Allocate().valid());
  EXPECT_EQ(slab.in_use(), 3U);
}

TEST(SlabTest, AStaleHandleReachesNothing) {
  Slab<int> slab(1);
  const SlabHandle old = slab.Allocate();
  *slab.Get(old) = 7;
  EXPECT_TRUE(slab.Free(old));
  EXPECT_EQ(slab.Get(old), nullptr);
  const SlabHandle next = slab.Allocate();
  EXPECT_EQ(next.index, old.index);
  EXPECT_NE(next.generation, old.generation);
  EXPECT_EQ(slab.Get(old), nullptr);
  EXPECT_FALSE(slab.Free(old)) << "freeing twice must not free the next owner's object";
  EXPECT_NE(slab.Get(next), nullptr);
  EXPECT_EQ(slab.in_use(), 1U);
}

TEST(SlabTest, HandlesThatWereNeverGivenReachNothing) {
  Slab<int> slab(2);
  EXPECT_EQ(slab.Get({}), nullptr);
  EXPECT_EQ(slab.Get({.index = 2, .generation = 1}), nullptr);
  EXPECT_EQ(slab.Get({.index = UINT32_MAX, .generation = UINT32_MAX}), nullptr);
  EXPECT_EQ(slab.Get({.index = 0, .generation = 1}), nullptr) << "right generation, but free";
  EXPECT_FALSE(slab.Free({.index = 0, .generation = 1}));
  EXPECT_EQ(slab.in_use(), 0U);
}

TEST(SlabTest, AnEmptySlabIsLegal) {
  Slab<int> slab(0);
  EXPECT_FALSE(slab.Allocate().valid());
  EXPECT_EQ(slab.Get({.index = 0, .generation = 1}), nullptr);
}

TEST(SlabTest, ObjectsKeepTheirStorage) {
  Slab<std::vector<int>> slab(1);
  SlabHandle handle = slab.Allocate();
  slab.Get(handle)->reserve(100);
  const int* const storage = slab.Get(handle)->data();
  slab.Free(handle);
  handle = slab.Allocate();
  EXPECT_GE(slab.Get(handle)->capacity(), 100U);
  EXPECT_EQ(slab.Get(handle)->data(), storage);
}

TEST(SlabTest, HandlesTravelAsWords) {
  Slab<int> slab(5);
  for (int i = 0; i < 5; ++i) {
    const SlabHandle handle = slab.Allocate();
    EXPECT_NE(handle.ToWord(), 0U);
    EXPECT_EQ(SlabHandle::FromWord(handle.ToWord()), handle);
  }
  EXPECT_FALSE(SlabHandle::FromWord(0).valid());
}

TEST(SlabTest, ForEachVisitsWhatIsInUseAndMayFreeIt) {
  Slab<int> slab(4);
  std::vector<SlabHandle> handles;
  for (int i = 0; i < 4; ++i) {
    handles.push_back(slab.Allocate());
    *slab.Get(handles.back()) = i;
  }
  slab.Free(handles[1]);
  std::vector<int> seen;
  slab.ForEach([&](SlabHandle handle, int& value) {
    seen.push_back(value);
    EXPECT_TRUE(slab.Free(handle));
  });
  EXPECT_EQ(seen, (std::vector<int>{0, 2, 3}));
  EXPECT_EQ(slab.in_use(), 0U);
}

}  // namespace
}  // namespace railhop
