#include "actors/target_route.h"

#include <gtest/gtest.h>

#include <set>

namespace railhop {
namespace {

TargetRoute Route() {
  TargetRoute route;
  route.buffers.resize(3);
  route.buffers[0] = {.address = 1000, .length = 100, .rkey = 1, .rails = {}, .own_nics = {}};
  route.buffers[1] = {.address = 1100, .length = 50, .rkey = 2, .rails = {}, .own_nics = {}};
  route.buffers[2] = {.address = 5000, .length = 1, .rkey = 3, .rails = {}, .own_nics = {}};
  return route;
}

TEST(TargetRouteTest, FindsTheBufferAnAddressLiesIn) {
  const TargetRoute route = Route();
  EXPECT_EQ(route.Find(1000), &route.buffers[0]);
  EXPECT_EQ(route.Find(1099), &route.buffers[0]);
  EXPECT_EQ(route.Find(1100), &route.buffers[1]);
  EXPECT_EQ(route.Find(1149), &route.buffers[1]);
  EXPECT_EQ(route.Find(5000), &route.buffers[2]);
  for (const uint64_t address :
       {uint64_t{0}, uint64_t{999}, uint64_t{1150}, uint64_t{4999}, uint64_t{5001}, UINT64_MAX}) {
    EXPECT_EQ(route.Find(address), nullptr) << address;
  }
}

TEST(TargetRouteTest, ATargetWithoutBuffersHasNoneAnywhere) {
  EXPECT_EQ(TargetRoute().Find(0), nullptr);
  EXPECT_EQ(TargetRoute().Find(UINT64_MAX), nullptr);
}

TEST(TargetRouteTest, ABufferMayEndAtTheEndOfTheAddressSpace) {
  TargetRoute route;
  route.buffers.push_back(
      {.address = UINT64_MAX - 9, .length = 10, .rkey = 1, .rails = {}, .own_nics = {}});
  EXPECT_EQ(route.Find(UINT64_MAX), &route.buffers[0]);
  EXPECT_EQ(route.Find(UINT64_MAX - 10), nullptr);
}

// Sender and relay must agree on this table: NICs that qualify, sorted by rail name, number
// `sequence mod count`.
TEST(TargetRouteTest, TheNicThatSendsIsTurnModCountOfThoseThatQualify) {
  const TargetBuffer two{
      .address = 0, .length = 1, .rkey = 0, .rails = {"a", "b"}, .own_nics = {3, 1}};
  const TargetBuffer none{.address = 0, .length = 1, .rkey = 0, .rails = {}, .own_nics = {}};
  struct Row {
    const TargetBuffer* buffer;
    uint32_t nics;
    uint64_t turn;
    uint32_t chosen;
  };
  for (const Row& row :
       {Row{&two, 4, 0, 3}, Row{&two, 4, 1, 1}, Row{&two, 4, 2, 3}, Row{&two, 4, UINT64_MAX, 1},
        Row{&none, 4, 0, 0}, Row{&none, 4, 3, 3}, Row{&none, 4, 6, 2}, Row{&none, 1, 17, 0}}) {
    EXPECT_EQ(ChooseNic(*row.buffer, row.nics, row.turn), row.chosen) << "turn " << row.turn;
  }
}

}  // namespace
}  // namespace railhop
