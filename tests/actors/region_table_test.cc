#include "actors/region_table.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace railhop {
namespace {

std::byte* At(uint64_t address) {
  return reinterpret_cast<std::byte*>(address);
}
Region MakeRegion(uint64_t base, uint64_t length) {
  Region region;
  region.base = At(base);
  region.length = length;
  return region;
}

TEST(RegionTableTest, FindsTheRegionThatTheWholeRangeLiesIn) {
  RegionTable table;
  Region low = MakeRegion(1000, 100), high = MakeRegion(2000, 50);
  ASSERT_TRUE(table.Add(&high));
  ASSERT_TRUE(table.Add(&low));
  EXPECT_EQ(table.Find(At(1000), 100), &low);
  EXPECT_EQ(table.Find(At(1099), 1), &low);
  EXPECT_EQ(table.Find(At(2049), 1), &high);
  EXPECT_EQ(table.Find(At(999), 1), nullptr);
  EXPECT_EQ(table.Find(At(1099), 2), nullptr);
  EXPECT_EQ(table.Find(At(1100), 1), nullptr);
  EXPECT_EQ(table.Find(At(2050), 1), nullptr);
  EXPECT_EQ(table.Find(At(2000), UINT64_MAX), nullptr);
}

TEST(RegionTableTest, ARangeOverTwoAdjacentRegionsLiesInNeither) {
  RegionTable table;
  Region first = MakeRegion(1000, 100), second = MakeRegion(1100, 100);
  ASSERT_TRUE(table.Add(&first));
  ASSERT_TRUE(table.Add(&second));
  EXPECT_EQ(table.Find(At(1099), 1), &first);
  EXPECT_EQ(table.Find(At(1100), 1), &second);
  EXPECT_EQ(table.Find(At(1090), 20), nullptr);
}

TEST(RegionTest, APartHasKeysOfItsOwn) {
  Region region = MakeRegion(1000, 100);
  region.lkeys = {1, 2};
  EXPECT_EQ(region.LeftInPart(At(1000)), 100u);
  EXPECT_EQ(region.LeftInPart(At(1099)), 1u);
  EXPECT_EQ(region.Lkey(At(1050), 1), 2u);
  region.part_ends = {30, 60, 100};
  region.lkeys = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(region.LeftInPart(At(1000)), 30u);
  EXPECT_EQ(region.LeftInPart(At(1029)), 1u);
  EXPECT_EQ(region.LeftInPart(At(1030)), 30u);
  EXPECT_EQ(region.LeftInPart(At(1099)), 1u);
  EXPECT_EQ(region.Lkey(At(1029), 0), 1u);
  EXPECT_EQ(region.Lkey(At(1030), 0), 3u);
  EXPECT_EQ(region.Lkey(At(1030), 1), 4u);
  EXPECT_EQ(region.Lkey(At(1060), 1), 6u);
  EXPECT_EQ(region.Lkey(At(1099), 1), 6u);
}

TEST(RegionTableTest, RefusesOverlapsFromEitherSide) {
  RegionTable table;
  Region middle = MakeRegion(1000, 100);
  ASSERT_TRUE(table.Add(&middle));
  for (const auto& [base, length] : std::vector<std::pair<uint64_t, uint64_t>>{
           {1000, 100}, {1050, 10}, {950, 51}, {1099, 1}, {900, 1000}, {1000, 1}}) {
    Region other = MakeRegion(base, length);
    EXPECT_FALSE(table.Add(&other)) << base << " + " << length;
  }
  Region before = MakeRegion(900, 100), after = MakeRegion(1100, 100);
  EXPECT_TRUE(table.Add(&before));
  EXPECT_TRUE(table.Add(&after));
}

TEST(RegionTableTest, RefusesWhatIsEmptyOrWraps) {
  RegionTable table;
  Region good = MakeRegion(1000, 100), empty = MakeRegion(1000, 0);
  Region wraps = MakeRegion(UINT64_MAX - 10, 12);
  EXPECT_FALSE(table.Add(&empty));
  ASSERT_TRUE(table.Add(&good));
  EXPECT_FALSE(table.Add(&wraps));
  EXPECT_EQ(table.Find(At(1000), 1), &good);
}

TEST(RegionTableTest, RemovesOnlyWhatIsThereAndNotInUse) {
  RegionTable table;
  Region region = MakeRegion(1000, 100), stranger = MakeRegion(5000, 100);
  ASSERT_TRUE(table.Add(&region));
  EXPECT_FALSE(table.Remove(&stranger));
  region.in_flight = 1;
  EXPECT_FALSE(table.Remove(&region));
  EXPECT_EQ(table.Find(At(1000), 1), &region);
  region.in_flight = 0;
  EXPECT_TRUE(table.Remove(&region));
  EXPECT_EQ(table.Find(At(1000), 1), nullptr);
  EXPECT_FALSE(table.Remove(&region));
  EXPECT_TRUE(table.Add(&region));
}

TEST(RegionTableTest, HoldsSixteenThousandAndNoMore) {
  RegionTable table;
  std::vector<Region> regions;
  for (size_t i = 0; i <= RegionTable::kMaxRegions; ++i) {
    // Not in order of address.
    regions.push_back(MakeRegion(4096 + (i * 7919 % RegionTable::kMaxRegions) * 16, 16));
  }
  regions.back() = MakeRegion(uint64_t{1} << 40, 16);
  for (size_t i = 0; i < RegionTable::kMaxRegions; ++i) ASSERT_TRUE(table.Add(&regions[i]));
  EXPECT_FALSE(table.Add(&regions.back()));
  for (Region& region : regions) {
    if (&region == &regions.back()) break;
    ASSERT_EQ(table.Find(region.base + 15, 1), &region);
  }
  ASSERT_TRUE(table.Remove(&regions[5]));
  EXPECT_TRUE(table.Add(&regions.back()));
}

}  // namespace
}  // namespace railhop
