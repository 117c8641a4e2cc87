#include "actors/batch_list.h"

#include <gtest/gtest.h>

#include <vector>

namespace railhop {
namespace {

class BatchListTest : public testing::Test {
 protected:
  std::vector<uint32_t> Empty(BatchList& list) {
    std::vector<uint32_t> indices;
    while (!list.empty()) indices.push_back(list.PopFront());
    return indices;
  }

  RequestTable table_{8};
  BatchList list_{&table_};
};

using Indices = std::vector<uint32_t>;

TEST_F(BatchListTest, IsAFifo) {
  for (const uint32_t index : {3u, 0u, 7u}) list_.PushBack(index);
  EXPECT_EQ(list_.last(), 7u);
  EXPECT_EQ(Empty(list_), (Indices{3, 0, 7}));
  EXPECT_EQ(list_.last(), BatchList::kNone);
  list_.PushBack(3);
  EXPECT_EQ(Empty(list_), (Indices{3}));
}

TEST_F(BatchListTest, RemovesFromEveryPlace) {
  for (const uint32_t removed : {1u, 2u, 3u, 4u}) {
    for (const uint32_t index : {1u, 2u, 3u, 4u}) list_.PushBack(index);
    list_.Remove(removed);
    list_.Remove(removed);
    list_.Remove(6);
    list_.PushBack(5);
    Indices expected;
    for (const uint32_t index : {1u, 2u, 3u, 4u, 5u}) {
      if (index != removed) expected.push_back(index);
    }
    EXPECT_EQ(Empty(list_), expected) << removed;
  }
}

TEST_F(BatchListTest, RemovesTheOnlyOne) {
  list_.PushBack(2);
  list_.Remove(2);
  EXPECT_TRUE(list_.empty());
  list_.PushBack(1);
  EXPECT_EQ(Empty(list_), (Indices{1}));
}

TEST_F(BatchListTest, AppendsAnotherList) {
  BatchList other(&table_);
  list_.Append(other);
  EXPECT_TRUE(list_.empty());
  other.PushBack(4);
  other.PushBack(5);
  list_.Append(other);
  EXPECT_TRUE(other.empty());
  other.PushBack(6);
  list_.Append(other);
  list_.Remove(5);
  EXPECT_EQ(list_.last(), 6u);
  EXPECT_EQ(Empty(list_), (Indices{4, 6}));
}

}  // namespace
}  // namespace railhop
