#include "actors/cut_requests.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace railhop {
namespace {

constexpr uint32_t kSlice = 64 * 1024;

TargetBuffer Buffer(uint64_t address, uint64_t length, uint32_t rkey) {
  TargetBuffer buffer;
  buffer.address = address;
  buffer.length = length;
  buffer.rkeys = {rkey};
  return buffer;
}

TargetRoute MakeTarget() {
  TargetRoute route;
  route.buffers = {Buffer(0x10000, 0x10000, 1), Buffer(0x20000, 0x8000, 2),  // adjacent
                   Buffer(0x100000, 0x1000000, 3)};
  return route;
}

std::vector<CutRequest> CutAll(const TargetRoute& route, std::vector<PlanEntry> plan,
                               SliceSize slice = {.bytes = kSlice}, std::byte* local = nullptr) {
  RequestCutter cutter(route, local, plan, slice);
  std::vector<CutRequest> requests;
  do {
    requests.push_back(cutter.Next());
  } while (!requests.back().last);
  return requests;
}

TEST(SliceSize, ASmallTailGoesWithTheSliceBeforeIt) {
  constexpr SliceSize kSize{.bytes = 1000, .fragment = 250};
  EXPECT_EQ(kSize.Next(10), 10u);
  EXPECT_EQ(kSize.Next(1000), 1000u);
  EXPECT_EQ(kSize.Next(1250), 1250u);
  EXPECT_EQ(kSize.Next(1251), 1000u);
  EXPECT_EQ(kSize.Next(UINT64_MAX), 1000u);
}

TEST(InsideRegistrations, OneRegistrationOrAdjacentOnes) {
  const TargetRoute route = MakeTarget();
  const auto inside = [&](uint64_t address, uint64_t length) {
    const PlanEntry entry{address, length};
    return InsideRegistrations(route, {&entry, 1});
  };
  EXPECT_TRUE(inside(0x10000, 0x10000));
  EXPECT_TRUE(inside(0x1FFFF, 2));
  EXPECT_TRUE(inside(0x10000, 0x18000));
  EXPECT_FALSE(inside(0x10000, 0x18001));  // one byte beyond the chain
  EXPECT_FALSE(inside(0xFFFF, 1));
  EXPECT_FALSE(inside(0x28000, 1));
  EXPECT_FALSE(inside(0xFFFFFF, 0x200000));
  EXPECT_FALSE(inside(UINT64_MAX - 4, 4));
}

TEST(InsideRegistrations, EveryEntryCounts) {
  const std::vector<PlanEntry> plan = {{0x10000, 16}, {0x100000, 16}, {0x28000, 1}};
  const TargetRoute route = MakeTarget();
  EXPECT_TRUE(InsideRegistrations(route, std::span(plan).first(2)));
  EXPECT_FALSE(InsideRegistrations(route, plan));
}

TEST(RequestCutter, ATailGoesWithTheRequestBeforeItWithinItsRegistration) {
  const SliceSize size{.bytes = 0x1000, .fragment = 0x400};
  const auto lengths = [&](const std::vector<PlanEntry>& plan) {
    std::vector<uint32_t> found;
    for (const CutRequest& request : CutAll(MakeTarget(), plan, size)) {
      found.push_back(request.length);
    }
    return found;
  };
  EXPECT_EQ(lengths({{0x100000, 0x2400}}), (std::vector<uint32_t>{0x1000, 0x1400}));
  EXPECT_EQ(lengths({{0x100000, 0x2401}}), (std::vector<uint32_t>{0x1000, 0x1000, 0x401}));
  // Neighbours count together, what lies elsewhere does not.
  EXPECT_EQ(lengths({{0x100000, 0x800}, {0x100800, 0xA00}, {0x101200, 0x100}}),
            (std::vector<uint32_t>{0x1300}));
  EXPECT_EQ(lengths({{0x100000, 0x1000}, {0x200000, 0x100}}),
            (std::vector<uint32_t>{0x1000, 0x100}));
  // 0x20000 is where one registration ends and another begins.
  EXPECT_EQ(lengths({{0x1F000, 0x1100}}), (std::vector<uint32_t>{0x1000, 0x100}));
}

TEST(RequestCutter, CutsAtTheSlice) {
  const auto requests = CutAll(MakeTarget(), {{0x100000, 2 * kSlice + 5}});
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[0].length, kSlice);
  EXPECT_EQ(requests[1].remote_address, 0x100000u + kSlice);
  EXPECT_EQ(requests[2].length, 5u);
  EXPECT_TRUE(requests[2].last);
  EXPECT_FALSE(requests[1].last);
}

TEST(RequestCutter, MergesNeighbours) {
  const auto requests =
      CutAll(MakeTarget(), {{0x100000, 100}, {0x100064, 100}, {0x100200, 8}, {0x100208, 8}});
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].length, 200u);
  EXPECT_EQ(requests[1].length, 16u);
  EXPECT_EQ(requests[1].remote_address, 0x100200u);
  EXPECT_EQ(requests[1].local - requests[0].local, 200);
}

TEST(RequestCutter, MergesAcrossTheSliceBoundary) {
  const auto requests = CutAll(MakeTarget(), {{0x100000, 100}, {0x100064, kSlice}});
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].length, kSlice);
  EXPECT_EQ(requests[1].length, 100u);
}

TEST(RequestCutter, EndsWithTheRegistration) {
  const auto requests = CutAll(MakeTarget(), {{0x1FF00, 0x200}});
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].rkey, 1u);
  EXPECT_EQ(requests[0].length, 0x100u);
  EXPECT_EQ(requests[1].rkey, 2u);
  EXPECT_EQ(requests[1].remote_address, 0x20000u);
}

TEST(RequestCutter, GoesBackwardsToo) {
  const auto requests = CutAll(MakeTarget(), {{0x100064, 100}, {0x100000, 100}});
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[1].remote_address, 0x100000u);
}

TEST(RequestCutter, OutsideItGivesNoKey) {
  const auto requests = CutAll(MakeTarget(), {{0x50, kSlice + 1}});
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].rkey, 0u);
}

TEST(RequestCutter, AnEmptyPlanEntryIsOneEmptyRequest) {
  const auto requests = CutAll(MakeTarget(), {{0x100000, 0}});
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].length, 0u);
  EXPECT_TRUE(requests[0].last);
}

// Whatever the plan, every byte goes exactly once to where the plan says, inside one registration.
TEST(RequestCutter, RandomPlansKeepEveryByte) {
  std::mt19937_64 random(5);
  const TargetRoute route = MakeTarget();
  for (int round = 0; round < 500; ++round) {
    std::vector<PlanEntry> plan;
    uint64_t address = 0x10000 + random() % 0x18000;
    uint64_t total = 0;
    for (uint64_t i = 0; i < 1 + random() % 20; ++i) {
      if (random() % 3 == 0) address = 0x100000 + random() % 0x800000;
      const uint64_t room = address < 0x28000 ? 0x28000 - address : kSlice * 3;
      if (room == 0) continue;
      const uint64_t length = 1 + random() % room;
      plan.push_back({address, length});
      total += length;
      address += length;
      if (address == 0x28000) address = 0x100000;
    }
    if (plan.empty()) continue;
    ASSERT_TRUE(InsideRegistrations(route, plan));
    const auto slice = static_cast<uint32_t>(1 + random() % kSlice);
    uint64_t done = 0;
    size_t entry = 0;
    uint64_t offset = 0;
    for (const CutRequest& request : CutAll(route, plan, {.bytes = slice})) {
      ASSERT_LE(request.length, slice);
      ASSERT_NE(request.length, 0u);
      ASSERT_EQ(reinterpret_cast<uint64_t>(request.local), done);
      const TargetBuffer* buffer = route.Find(request.remote_address);
      ASSERT_NE(buffer, nullptr);
      ASSERT_EQ(buffer->rkeys[0], request.rkey);
      ASSERT_LE(request.remote_address + request.length, buffer->address + buffer->length);
      for (uint64_t left = request.length, at = request.remote_address; left != 0;) {
        ASSERT_EQ(at, plan[entry].final_destination + offset);
        const uint64_t step = std::min(left, plan[entry].length - offset);
        left -= step;
        at += step;
        offset += step;
        if (offset == plan[entry].length) ++entry, offset = 0;
      }
      done += request.length;
      ASSERT_EQ(request.last, done == total);
    }
    ASSERT_EQ(done, total);
  }
}

}  // namespace
}  // namespace railhop
