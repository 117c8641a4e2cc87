#include "actors/slice_paths.h"

#include <gtest/gtest.h>

#include <vector>

namespace railhop {
namespace {

class SlicePathsTest : public testing::Test {
 protected:
  SlicePathsTest() {
    route_.index = 5;
    route_.endpoints = {10, 11, 12, 13};
  }
  std::vector<uint32_t> FirstFour(uint32_t avoid = SlicePaths::kNone) const {
    std::vector<uint32_t> nics;
    for (uint64_t turn = 0; turn < 4; ++turn) {
      nics.push_back(paths_.Choose(route_, &buffer_, turn, avoid));
    }
    return nics;
  }
  using Nics = std::vector<uint32_t>;

  SlicePaths paths_{4};
  TargetRoute route_;
  TargetBuffer buffer_;
};

TEST_F(SlicePathsTest, CountsThroughTheSameNicsAsARelay) {
  for (const Nics& own : {Nics{}, Nics{2}, Nics{3, 1}}) {
    buffer_.own_nics = own;
    for (uint64_t turn = 0; turn < 9; ++turn) {
      EXPECT_EQ(paths_.Choose(route_, &buffer_, turn), ChooseNic(buffer_, 4, turn));
    }
  }
  EXPECT_EQ(paths_.Choose(route_, nullptr, 6), 2u);
}

TEST_F(SlicePathsTest, SlicesAreDealtOutWhereThereIsAChoice) {
  EXPECT_TRUE(paths_.Spreads(buffer_));
  EXPECT_FALSE(SlicePaths(1).Spreads(buffer_));
  buffer_.own_nics = {2};
  EXPECT_FALSE(paths_.Spreads(buffer_));
  buffer_.own_nics = {2, 3};
  EXPECT_TRUE(paths_.Spreads(buffer_));
}

TEST_F(SlicePathsTest, ABrokenPathIsLeftOutUntilItIsConnectedAnew) {
  buffer_.own_nics = {1, 2};
  paths_.NoteBroken(5, 1, 11);
  EXPECT_EQ(FirstFour(), (Nics{2, 2, 2, 2}));
  paths_.NoteBroken(5, 2, 12);
  EXPECT_EQ(FirstFour(), (Nics{0, 3, 3, 3})) << "better by another rail than not at all";
  route_.endpoints[2] = 22;
  EXPECT_EQ(FirstFour(), (Nics{2, 2, 2, 2}));
  // What broke of a former connection says nothing of this one, nor of another target.
  paths_.NoteBroken(5, 2, 12);
  paths_.NoteBroken(4, 2, 22);
  EXPECT_EQ(FirstFour(), (Nics{2, 2, 2, 2}));
}

TEST_F(SlicePathsTest, TheNicThatFailedComesLast) {
  buffer_.own_nics = {1, 2};
  EXPECT_EQ(FirstFour(1), (Nics{2, 2, 2, 2}));
  for (const uint32_t nic : {0, 2, 3}) paths_.NoteBroken(5, nic, 10 + nic);
  EXPECT_EQ(FirstFour(1), (Nics{1, 1, 1, 1}));
  paths_.NoteBroken(5, 1, 11);
  EXPECT_EQ(FirstFour(1), Nics(4, SlicePaths::kNone));
  EXPECT_EQ(FirstFour(), Nics(4, SlicePaths::kNone));
}

}  // namespace
}  // namespace railhop
