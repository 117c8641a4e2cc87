#include "transport/engine/scatter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace railhop {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class ScatterTest : public testing::Test {
 protected:
  ScatterTest() {
    range_.opcode = Opcode::kRead;
    range_.remote_address = 0x10000;
    range_.remote_size = 100;
    range_.local = local_.data();
    range_.local_size = local_.size();
    range_.local_offsets = local_offsets_;
    range_.remote_offsets = remote_offsets_;
    range_.lengths = lengths_;
  }
  std::string Refused() {
    std::string error;
    EXPECT_FALSE(AppendFragments(range_, 3, &tasks_, &error));
    EXPECT_THAT(tasks_, IsEmpty());
    return error;
  }

  std::array<std::byte, 50> local_{};
  std::array<size_t, 3> local_offsets_{0, 40, 50};
  std::array<size_t, 3> remote_offsets_{90, 0, 100};
  std::array<size_t, 3> lengths_{10, 10, 0};
  ScatterRange range_;
  std::vector<TransferTask> tasks_;
};

TEST_F(ScatterTest, EachFragmentIsATask) {
  std::string error;
  ASSERT_TRUE(AppendFragments(range_, 3, &tasks_, &error)) << error;
  ASSERT_EQ(tasks_.size(), 3u);
  EXPECT_EQ(tasks_[0].source, local_.data());
  EXPECT_EQ(tasks_[0].target_address, 0x10000u + 90);
  EXPECT_EQ(tasks_[1].source, local_.data() + 40);
  EXPECT_EQ(tasks_[1].target_address, 0x10000u);
  EXPECT_EQ(tasks_[1].length, 10u);
  EXPECT_EQ(tasks_[2].length, 0u);
  EXPECT_EQ(tasks_[2].opcode, Opcode::kRead);
  EXPECT_EQ(tasks_[2].target, 3u);
}

TEST_F(ScatterTest, AFragmentOutsideABufferRefusesThemAll) {
  lengths_[1] = 11;
  EXPECT_THAT(Refused(), HasSubstr("fragment 1"));
  lengths_[1] = 10;
  remote_offsets_[0] = 91;
  EXPECT_THAT(Refused(), HasSubstr("fragment 0"));
  remote_offsets_[0] = 101;
  EXPECT_THAT(Refused(), HasSubstr("fragment 0"));
  remote_offsets_[0] = 0;
  lengths_[2] = SIZE_MAX;
  EXPECT_THAT(Refused(), HasSubstr("fragment 2"));
}

TEST_F(ScatterTest, ListsOfDifferentLengthsAndRangesThatWrapAreRefused) {
  range_.lengths = std::span(lengths_).first(2);
  EXPECT_THAT(Refused(), HasSubstr("not equally many"));
  range_.lengths = lengths_;
  range_.remote_address = UINT64_MAX - 10;
  EXPECT_THAT(Refused(), HasSubstr("wraps"));
}

}  // namespace
}  // namespace railhop
