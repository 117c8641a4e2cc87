#include "transport/fabric/memory_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace railhop {
namespace {

using testing::ElementsAre;

struct Shown {
  uint64_t offset, length;
  std::vector<uint32_t> lkeys;
  friend bool operator==(const Shown&, const Shown&) = default;
};

std::vector<Shown> Common(const std::vector<std::vector<MemoryPart>>& by_nic) {
  std::vector<Shown> shown;
  for (const CommonPart& part : CommonParts(by_nic)) {
    shown.push_back({part.offset, part.length, {}});
    for (const MemoryKey& key : part.keys) shown.back().lkeys.push_back(key.lkey);
  }
  return shown;
}

MemoryPart Part(uint64_t length, uint32_t lkey) {
  return {.length = length, .key = {.lkey = lkey, .rkey = 0}};
}

TEST(MemoryPartsTest, OnePartEachIsOnePart) {
  EXPECT_THAT(Common({{Part(100, 1)}, {Part(100, 2)}}), ElementsAre(Shown{0, 100, {1, 2}}));
}

TEST(MemoryPartsTest, APartEndsWhereThatOfAnyNicDoes) {
  EXPECT_THAT(
      Common({{Part(100, 1)}, {Part(60, 2), Part(40, 3)}, {Part(30, 4), Part(70, 5)}}),
      ElementsAre(Shown{0, 30, {1, 2, 4}}, Shown{30, 30, {1, 2, 5}}, Shown{60, 40, {1, 3, 5}}));
}

TEST(MemoryPartsTest, PartsThatEndTogetherMakeOneCut) {
  EXPECT_THAT(Common({{Part(50, 1), Part(50, 2)}, {Part(50, 3), Part(50, 4)}}),
              ElementsAre(Shown{0, 50, {1, 3}}, Shown{50, 50, {2, 4}}));
}

}  // namespace
}  // namespace railhop
