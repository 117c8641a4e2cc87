#include "actors/slice_paths.h"

#include <gtest/gtest.h>

#include <vector>

namespace railhop {
namespace {

using Paths = std::vector<PathId>;

class SlicePathsTest : public testing::Test {
 protected:
  SlicePathsTest() {
    route_.index = 5;
    route_.endpoints.resize(PathCount(4));
    for (uint32_t nic = 0; nic < 4; ++nic) route_.endpoints[MakePath(nic)] = 10 + nic;
  }
  Paths FirstFour(PathId avoid = kNoPath) const {
    Paths paths;
    for (uint64_t turn = 0; turn < 4; ++turn) {
      paths.push_back(paths_.Choose(route_, &buffer_, turn, avoid));
    }
    return paths;
  }
  static Paths Via(std::vector<uint32_t> nics) {
    Paths paths;
    for (const uint32_t nic : nics) paths.push_back(MakePath(nic));
    return paths;
  }

  SlicePaths paths_{4};
  TargetRoute route_;
  TargetBuffer buffer_;
};

TEST_F(SlicePathsTest, AlternatesAsARelayDoes) {
  buffer_.paths = Via({3, 1});
  EXPECT_EQ(FirstFour(), Via({3, 1, 3, 1}));
  EXPECT_EQ(paths_.Choose(route_, nullptr, 6), MakePath(2));
}

TEST_F(SlicePathsTest, SlicesAreDealtOutWhereThereIsAChoice) {
  buffer_.paths = Via({2});
  EXPECT_FALSE(SlicePaths::Spreads(buffer_));
  buffer_.paths = {MakePath(2, 0), MakePath(2, 1)};
  EXPECT_TRUE(SlicePaths::Spreads(buffer_));
}

TEST_F(SlicePathsTest, ABrokenPathIsLeftOutUntilItIsConnectedAnew) {
  buffer_.paths = Via({1, 2});
  paths_.NoteBroken(5, MakePath(1), 11);
  EXPECT_EQ(FirstFour(), Via({2, 2, 2, 2}));
  paths_.NoteBroken(5, MakePath(2), 12);
  EXPECT_EQ(FirstFour(), Via({0, 3, 3, 3})) << "better by another rail than not at all";
  route_.endpoints[MakePath(2)] = 22;
  EXPECT_EQ(FirstFour(), Via({2, 2, 2, 2}));
  // What broke of a former connection says nothing of this one, nor of another target.
  paths_.NoteBroken(5, MakePath(2), 12);
  paths_.NoteBroken(4, MakePath(2), 22);
  EXPECT_EQ(FirstFour(), Via({2, 2, 2, 2}));
}

TEST_F(SlicePathsTest, TheSameNicGoesOnToAnotherOfTheTargets) {
  route_.endpoints[MakePath(1, 4)] = 30;
  buffer_.paths = {MakePath(1, 0), MakePath(1, 4)};
  paths_.NoteBroken(5, MakePath(1, 0), 11);
  EXPECT_EQ(FirstFour(), Paths(4, MakePath(1, 4)));
}

TEST_F(SlicePathsTest, ThePathThatFailedComesLast) {
  buffer_.paths = Via({1, 2});
  EXPECT_EQ(FirstFour(MakePath(1)), Via({2, 2, 2, 2}));
  for (const uint32_t nic : {0, 2, 3}) paths_.NoteBroken(5, MakePath(nic), 10 + nic);
  EXPECT_EQ(FirstFour(MakePath(1)), Via({1, 1, 1, 1}));
  paths_.NoteBroken(5, MakePath(1), 11);
  EXPECT_EQ(FirstFour(MakePath(1)), Paths(4, kNoPath));
  EXPECT_EQ(FirstFour(), Paths(4, kNoPath));
}

}  // namespace
}  // namespace railhop
