#include "transport/topology/memory_location.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace railhop {
namespace {

using testing::HasSubstr;

TEST(MemoryLocationTest, AcceptsWhatIsDefined) {
  for (const char* location :
       {"*", "cpu:0", "cpu:65535", "cuda:7", "segments:4096:0", "segments:2097152:1,3,5,7"}) {
    EXPECT_TRUE(ValidateLocation(location).ok()) << location;
  }
}

TEST(MemoryLocationTest, RefusesTheRestAndSaysWhatIsAllowed) {
  for (const char* location : {"",
                               "cpu",
                               "cpu:",
                               "cpu:-1",
                               "cpu:1x",
                               "cpu: 1",
                               "cpu:65536",
                               "cpu:99999999999999999999",
                               "cuda:",
                               "cuda:a",
                               "gpu:0",
                               "**",
                               "segments:",
                               "segments:4096",
                               "segments:4096:",
                               "segments:0:1",
                               "segments::1",
                               "segments:4096:1,",
                               "segments:4096:,1",
                               "segments:4096:1,,2",
                               "segments:x:1",
                               "segments:4096:70000"}) {
    const absl::Status status = ValidateLocation(location);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << location;
    EXPECT_THAT(std::string(status.message()), HasSubstr("\"cuda:<ordinal>\"")) << location;
  }
  std::string many = "segments:4096:0";
  for (int i = 0; i < 4096; ++i) many += ",0";
  EXPECT_FALSE(ValidateLocation(many).ok());
  EXPECT_LT(ValidateLocation(many).message().size(), 400u);
}

TEST(MemoryLocationTest, APlainLocationIsTheSameEverywhere) {
  EXPECT_EQ(LocationAt("*", 100, 50), "*");
  EXPECT_EQ(LocationAt("cuda:3", 100, 99), "cuda:3");
  EXPECT_EQ(LocationAt("hip:1", 100, 0), "hip:1") << "of another vendor";
}

TEST(MemoryLocationTest, ASegmentedBufferIsCutIntoEqualRegions) {
  const std::string location = "segments:4096:1,3,5,7";
  EXPECT_EQ(LocationAt(location, 16384, 0), "cpu:1");
  EXPECT_EQ(LocationAt(location, 16384, 4095), "cpu:1");
  EXPECT_EQ(LocationAt(location, 16384, 4096), "cpu:3");
  EXPECT_EQ(LocationAt(location, 16384, 12288), "cpu:7");
  EXPECT_EQ(LocationAt(location, 16384, 16383), "cpu:7");
}

TEST(MemoryLocationTest, TheLastRegionTakesWhatIsLeftOver) {
  // 10 bytes, three regions of 3.
  EXPECT_EQ(LocationAt("segments:4096:0,1,2", 10, 8), "cpu:2");
  EXPECT_EQ(LocationAt("segments:4096:0,1,2", 10, 9), "cpu:2");
  EXPECT_EQ(LocationAt("segments:4096:0,1,2", 10, UINT64_MAX), "cpu:2");
}

TEST(MemoryLocationTest, WhatCannotBeResolvedIsAnywhere) {
  EXPECT_EQ(LocationAt("segments:4096:0,1,2", 2, 1), "*") << "fewer bytes than regions";
  EXPECT_EQ(LocationAt("segments:4096:0,1,2", 0, 0), "*");
  EXPECT_EQ(LocationAt("segments:4096:", 100, 0), "*");
  EXPECT_EQ(LocationAt("segments:x:1", 100, 0), "*");
}

}  // namespace
}  // namespace railhop
