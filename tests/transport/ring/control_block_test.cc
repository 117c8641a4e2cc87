// Writes a block through the structs and reads raw bytes at the numbers of the ABI, and the other
// way round. The numbers are written out on purpose: they are the contract.
#include "transport/ring/control_block.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace railhop {
namespace {

constexpr uint64_t kBlockBytes = 8'306'816;
constexpr uint64_t kLanesAt = 448;
constexpr uint64_t kLaneBytes = 1'186'624;
constexpr uint64_t kDescriptorsAt = 64;
constexpr uint64_t kDescriptorBytes = 65'856;
constexpr uint64_t kCompletionsAt = 1'185'472;
constexpr uint64_t kCompletionBytes = 64;

struct Field {
  std::string name;
  uint64_t offset;
  size_t bytes;
  std::function<void*(ControlBlock&)> address;
};

template <typename Get>
Field Make(std::string name, uint64_t offset, size_t bytes, Get get) {
  return {std::move(name), offset, bytes, [get](ControlBlock& block) -> void* {
            auto& field = get(block);
            return &field;
          }};
}

#define HEADER(field, offset, bytes) \
  Make(                              \
      #field, offset, bytes, [](ControlBlock & b) -> auto& { return b.header.field; })

std::vector<Field> Fields() {
  std::vector<Field> fields = {
      HEADER(magic, 0, 8),
      HEADER(abi_version, 8, 4),
      HEADER(header_bytes, 12, 4),
      HEADER(mapping_bytes, 16, 8),
      HEADER(state, 24, 4),
      HEADER(rail_bytes, 28, 4),
      HEADER(owner.uid, 32, 4),
      HEADER(owner.pid, 36, 4),
      HEADER(owner.start_ticks, 40, 8),
      HEADER(epoch, 48, 8),
      HEADER(heartbeat, 56, 8),
      HEADER(lane_count, 64, 4),
      HEADER(slots_per_lane, 68, 4),
      HEADER(slot_size, 72, 8),
      HEADER(arena_size, 80, 8),
      HEADER(ipc_handle_bytes, 88, 4),
      HEADER(reserved, 92, 4),
      HEADER(rail, 96, 256),
      HEADER(arena_handle, 352, 64),
      HEADER(padding, 416, 32),
  };
  for (uint32_t lane = 0; lane < 7; ++lane) {
    const uint64_t base = kLanesAt + lane * kLaneBytes;
    const std::string prefix = "lane " + std::to_string(lane) + " ";
    const auto header = [&](const char* name, uint64_t offset, size_t bytes, auto member) {
      fields.push_back(Make(
          prefix + name, base + offset, bytes,
          [ lane, member ](ControlBlock & b) -> auto& { return b.lanes[lane].header.*member; }));
    };
    header("state", 0, 4, &LaneHeader::state);
    header("arena_attached", 4, 4, &LaneHeader::arena_attached);
    header("sender", 8, 16, &LaneHeader::sender);
    header("sender_epoch", 24, 8, &LaneHeader::sender_epoch);
    header("head", 32, 8, &LaneHeader::head);
    header("doorbell", 40, 8, &LaneHeader::doorbell);
    header("completed", 48, 8, &LaneHeader::completed);
    header("padding", 56, 8, &LaneHeader::padding);
    for (const uint32_t slot : {0u, 1u, 9u, 17u}) {
      const uint64_t at = base + kDescriptorsAt + slot * kDescriptorBytes;
      const std::string name = prefix + "descriptor " + std::to_string(slot) + " ";
      const auto descriptor = [&](const char* field, uint64_t offset, size_t bytes, auto member) {
        fields.push_back(Make(
            name + field, at + offset, bytes, [ lane, slot, member ](ControlBlock & b) -> auto& {
              return b.lanes[lane].descriptors[slot].*member;
            }));
      };
      descriptor("commit_sequence", 0, 8, &Descriptor::commit_sequence);
      descriptor("epoch", 8, 8, &Descriptor::epoch);
      descriptor("piece_length", 16, 4, &Descriptor::piece_length);
      descriptor("plan_count", 20, 4, &Descriptor::plan_count);
      descriptor("session_length", 24, 4, &Descriptor::session_length);
      descriptor("reserved", 28, 4, &Descriptor::reserved);
      descriptor("session", 32, 256, &Descriptor::session);
      descriptor("plans", 288, 65'536, &Descriptor::plans);
      descriptor("padding", 65'824, 32, &Descriptor::padding);

      const uint64_t answer = base + kCompletionsAt + slot * kCompletionBytes;
      const auto completion = [&](const char* field, uint64_t offset, size_t bytes, auto member) {
        fields.push_back(Make(
            prefix + "completion " + std::to_string(slot) + " " + field, answer + offset, bytes,
            [ lane, slot, member ](ControlBlock & b) -> auto& {
              return b.lanes[lane].completions[slot].*member;
            }));
      };
      completion("commit_sequence", 0, 8, &Completion::commit_sequence);
      completion("status", 8, 4, &Completion::status);
      completion("reserved", 12, 4, &Completion::reserved);
      completion("padding", 16, 48, &Completion::padding);
    }
  }
  return fields;
}

// A byte that depends on where it is, so that neighbours differ.
unsigned char Pattern(size_t field, size_t byte) {
  return static_cast<unsigned char>(1 + (field * 31 + byte * 7) % 251);
}

class ControlBlockTest : public ::testing::Test {
 protected:
  ControlBlockTest() : block_(std::make_unique<ControlBlock>()) {
    std::memset(static_cast<void*>(block_.get()), 0, sizeof(ControlBlock));
  }
  unsigned char* raw() { return reinterpret_cast<unsigned char*>(block_.get()); }

  std::unique_ptr<ControlBlock> block_;
};

TEST_F(ControlBlockTest, SizesAreThoseOfTheAbi) {
  EXPECT_EQ(sizeof(ControlBlock), kBlockBytes);
  EXPECT_EQ(kLanesAt + 7 * kLaneBytes, kBlockBytes);
  EXPECT_EQ(kCompletionsAt + 18 * kCompletionBytes, kLaneBytes);
  EXPECT_EQ(kDescriptorsAt + 18 * kDescriptorBytes, kCompletionsAt);
  EXPECT_EQ(kLaneCount, 7u);
  EXPECT_EQ(kSlotsPerLane, 18u);
  EXPECT_EQ(kSlotBytes, 8'388'608u);
  EXPECT_EQ(kArenaBytes, 1'056'964'608u);
  EXPECT_EQ(kMaxPlanEntries, 4096u);
  EXPECT_EQ(kMaxSessionBytes, 256u);
  EXPECT_EQ(kMaxRailBytes, 256u);
  EXPECT_EQ(kArenaHandleBytes, 64u);
  EXPECT_EQ(kRegistryMagic, 0x4D4350584E524547u);
  EXPECT_EQ(kAbiVersion, 1u);
}

TEST_F(ControlBlockTest, FieldsWrittenAreFoundAtTheirRawOffsets) {
  const std::vector<Field> fields = Fields();
  for (size_t i = 0; i < fields.size(); ++i) {
    auto* bytes = static_cast<unsigned char*>(fields[i].address(*block_));
    for (size_t j = 0; j < fields[i].bytes; ++j) bytes[j] = Pattern(i, j);
  }
  for (size_t i = 0; i < fields.size(); ++i) {
    for (size_t j = 0; j < fields[i].bytes; ++j) {
      ASSERT_EQ(raw()[fields[i].offset + j], Pattern(i, j)) << fields[i].name << " byte " << j;
    }
  }
}

TEST_F(ControlBlockTest, RawBytesAreFoundInTheirFields) {
  const std::vector<Field> fields = Fields();
  for (size_t i = 0; i < fields.size(); ++i) {
    for (size_t j = 0; j < fields[i].bytes; ++j) raw()[fields[i].offset + j] = Pattern(i, j);
  }
  for (size_t i = 0; i < fields.size(); ++i) {
    const auto* bytes = static_cast<const unsigned char*>(fields[i].address(*block_));
    for (size_t j = 0; j < fields[i].bytes; ++j) {
      ASSERT_EQ(bytes[j], Pattern(i, j)) << fields[i].name << " byte " << j;
    }
  }
}

TEST_F(ControlBlockTest, IntegersAreLittleEndian) {
  block_->header.magic = kRegistryMagic;
  EXPECT_EQ(std::memcmp(raw(), "GERNXPCM", 8), 0);
  block_->header.owner.pid = 0x01020304;
  EXPECT_EQ(raw()[36], 4);
  EXPECT_EQ(raw()[39], 1);
  block_->lanes[6].completions[17].status = -2;
  const uint64_t at = kBlockBytes - 64 + 8;
  EXPECT_EQ(raw()[at], 0xfe);
  EXPECT_EQ(raw()[at + 3], 0xff);
}

TEST_F(ControlBlockTest, PlanEntriesLieBackToBack) {
  Descriptor& descriptor = block_->lanes[2].descriptors[3];
  descriptor.plans[4095] = {.final_destination = 0x1122334455667788, .length = 0x99};
  const uint64_t at =
      kLanesAt + 2 * kLaneBytes + kDescriptorsAt + 3 * kDescriptorBytes + 288 + 4095 * 16;
  EXPECT_EQ(raw()[at], 0x88);
  EXPECT_EQ(raw()[at + 7], 0x11);
  EXPECT_EQ(raw()[at + 8], 0x99);
}

TEST_F(ControlBlockTest, SlotsFollowSequences) {
  EXPECT_EQ(SlotIndex(1), 0u);
  EXPECT_EQ(SlotIndex(18), 17u);
  EXPECT_EQ(SlotIndex(19), 0u);
  EXPECT_EQ(SlotIndex(18'000'000'000'000'000'001u), 0u);
  EXPECT_EQ(SlotOffset(0, 0), 0u);
  EXPECT_EQ(SlotOffset(0, 17), 17 * 8'388'608u);
  EXPECT_EQ(SlotOffset(1, 0), 18 * 8'388'608u);
  EXPECT_EQ(SlotOffset(6, 17), 125 * 8'388'608u);
}

}  // namespace
}  // namespace railhop
