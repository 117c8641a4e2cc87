#include "actors/target_table.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace railhop {
namespace {

TargetRoute Route(uint32_t index, const std::string& name, uint32_t version = 1) {
  TargetRoute route;
  route.index = index;
  route.version = version;
  route.name = name;
  return route;
}

TEST(TargetTable, FindsByName) {
  TargetTable table;
  const TargetRoute a = Route(0, "a");
  const TargetRoute b = Route(1, "b");
  EXPECT_EQ(table.Find("a"), nullptr);
  EXPECT_TRUE(table.Put(a));
  EXPECT_TRUE(table.Put(b));
  EXPECT_EQ(table.Find("a"), &a);
  EXPECT_EQ(table.Find("b"), &b);
  EXPECT_EQ(table.Find("ab"), nullptr);
  EXPECT_EQ(table.Newest(1), &b);
  EXPECT_EQ(table.Newest(2), nullptr);
}

TEST(TargetTable, TheNewestVersionCounts) {
  TargetTable table;
  const TargetRoute first = Route(3, "a");
  const TargetRoute second = Route(3, "a", 2);
  EXPECT_TRUE(table.Put(second));
  EXPECT_FALSE(table.Put(first));
  EXPECT_FALSE(table.Put(second));
  EXPECT_EQ(table.Find("a"), &second);
}

TEST(TargetTable, AFailureEndsTheVersionsUpToIt) {
  TargetTable table;
  const TargetRoute first = Route(3, "a");
  const TargetRoute second = Route(3, "a", 2);
  table.Put(first);
  table.Fail(3, 1);
  EXPECT_EQ(table.Find("a"), nullptr);
  EXPECT_EQ(table.Newest(3), &first);
  table.Put(second);
  EXPECT_EQ(table.Find("a"), &second);
  table.Fail(3, 1);  // was overtaken
  EXPECT_EQ(table.Find("a"), &second);
  table.Fail(5, 1);  // never known
}

TEST(TargetTable, HoldsAsManyAsThereCanBe) {
  TargetTable table;
  std::vector<TargetRoute> routes;
  for (uint32_t i = 0; i < kMaxTargets; ++i) routes.push_back(Route(i, std::to_string(i)));
  for (const TargetRoute& route : routes) ASSERT_TRUE(table.Put(route));
  for (const TargetRoute& route : routes) ASSERT_EQ(table.Find(route.name), &route);
  EXPECT_EQ(table.Find("1024"), nullptr);
}

}  // namespace
}  // namespace railhop
