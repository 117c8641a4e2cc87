// What the tests of the relaying actors share: a rank's lanes in plain memory, senders that use
// them, and targets.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/target_route.h"
#include "runtime/fence.h"
#include "tests/transport/ring/ring_test_support.h"
#include "transport/ring/completion.h"
#include "transport/ring/descriptor.h"
#include "transport/ring/side_directory.h"

namespace railhop {

// The relay's side of shared memory, as its control thread would have made it.
class RelayMemory {
 public:
  static constexpr uint64_t kEpoch = 77;

  RelayMemory() : block(std::make_unique<ControlBlock>()) {
    arena_ = mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT_NE(arena_, MAP_FAILED);
    auto directory = SideDirectory::Open(root_.path(), "test");
    EXPECT_TRUE(directory.ok()) << directory.status();
    side_directory.emplace(*std::move(directory));
    identity = *SelfIdentity();
    auto made = side_directory->Create(identity, kEpoch, std::vector<std::string>{"rail0"});
    EXPECT_TRUE(made.ok()) << made.status();
    side.emplace(*std::move(made));
  }
  RelayMemory(const RelayMemory&) = delete;
  RelayMemory& operator=(const RelayMemory&) = delete;
  ~RelayMemory() { munmap(arena_, kArenaBytes); }

  std::byte* arena() const { return static_cast<std::byte*>(arena_); }
  std::byte* slot(uint32_t lane, uint64_t sequence) const {
    return arena() + SlotOffset(lane, SlotIndex(sequence));
  }
  PeerSide OpenAsPeer() {
    auto peer = side_directory->OpenPeer(MakeKey(identity, kEpoch));
    EXPECT_TRUE(peer.ok()) << peer.status();
    return *std::move(peer);
  }

  std::unique_ptr<ControlBlock> block;
  ProcessIdentity identity{};
  std::optional<SideDirectory> side_directory;
  std::optional<LocalSide> side;

 private:
  testing::PrivateRoot root_;
  void* arena_ = nullptr;
};

// A sender in one lane, from its claim on.
class LaneUser {
 public:
  LaneUser(RelayMemory& memory, uint32_t number, uint64_t sender_epoch, bool version_one = false)
      : memory_(&memory), number_(number), version_one_(version_one) {
    LaneControl& lane = control();
    StoreLaneState(lane.header, LaneState::kClaiming);
    const ProcessIdentity self = memory.identity;
    lane.header.sender = self;
    lane.header.head = lane.header.doorbell = lane.header.completed = 0;
    for (Completion& completion : lane.completions) completion = {};
    for (Descriptor& descriptor : lane.descriptors) descriptor.commit_sequence = 0;
    lane.header.sender_epoch = sender_epoch;
    if (!version_one) {
      for (uint64_t& word : side().claims) StoreRelaxed(word, 0);
      StoreRelease(side().sender_epoch, sender_epoch);
      StoreRelease(side().claim_count, side().claim_count + 1);
    }
    StoreLaneState(lane.header, LaneState::kReady);
  }

  LaneControl& control() const { return memory_->block->lanes[number_]; }
  SideLane& side() const { return memory_->side->file().lanes[number_]; }
  uint64_t next() const { return next_; }

  // Everything but the doorbell. Returns the sequence.
  uint64_t Write(const std::string& session, std::span<const PlanEntry> plan,
                 uint64_t epoch = RelayMemory::kEpoch) {
    const uint64_t sequence = next_++;
    Descriptor& descriptor = control().descriptors[SlotIndex(sequence)];
    EXPECT_EQ(writer_.Prepare(descriptor, SlotIndex(sequence), epoch, session, plan),
              DescriptorError::kNone);
    if (!version_one_) OfferPiece(side(), sequence);
    DescriptorWriter::Commit(descriptor, sequence);
    return sequence;
  }
  void Ring(uint64_t sequence) {
    StoreRelease(control().header.doorbell, sequence);
    StoreRelease(control().header.head, sequence);
  }
  uint64_t Send(const std::string& session, std::span<const PlanEntry> plan) {
    const uint64_t sequence = Write(session, plan);
    Ring(sequence);
    return sequence;
  }
  uint64_t Send(const std::string& session, uint64_t address, uint64_t length) {
    const PlanEntry entry{address, length};
    return Send(session, {&entry, 1});
  }
  // The answer to a piece, once there is one.
  std::optional<int32_t> Answer(uint64_t sequence) const {
    int32_t status = 0;
    const auto state =
        TryLoadCompletion(control().completions[SlotIndex(sequence)], sequence, &status);
    EXPECT_NE(state, CompletionState::kMalformed);
    if (state != CompletionState::kReady) return std::nullopt;
    return status;
  }
  std::optional<RelayStatus> StatusOf(uint64_t sequence) const {
    const std::optional<int32_t> answer = Answer(sequence);
    if (!answer) return std::nullopt;
    return static_cast<RelayStatus>(*answer);
  }
  uint64_t completed() const { return LoadAcquire(control().header.completed); }

 private:
  RelayMemory* memory_;
  uint32_t number_;
  bool version_one_;
  uint64_t next_ = 1;
  DescriptorWriter writer_;
};

inline TargetBuffer MakeBuffer(uint64_t address, uint64_t length, uint32_t rkey,
                               const std::vector<uint32_t>& own_nics = {0}) {
  TargetBuffer buffer;
  buffer.address = address;
  buffer.length = length;
  buffer.rkeys = {rkey};
  for (const uint32_t nic : own_nics) buffer.paths.push_back(MakePath(nic));
  return buffer;
}

// A target with one buffer, reached over endpoint 10 * index + 1 + NIC.
inline TargetRoute MakeRoute(uint32_t index, const std::string& name, size_t nics = 1,
                             std::vector<TargetBuffer> buffers = {}) {
  TargetRoute route;
  route.index = index;
  route.version = 1;
  route.name = name;
  route.buffers = std::move(buffers);
  if (route.buffers.empty()) route.buffers.push_back(MakeBuffer(0x1000'0000, 0x4000'0000, 9));
  route.endpoints.resize(PathCount(nics));
  for (uint32_t nic = 0; nic < nics; ++nic) route.endpoints[MakePath(nic)] = 10 * index + 1 + nic;
  return route;
}

}  // namespace railhop
