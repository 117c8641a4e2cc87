// What a process shares beyond version 1 of the block: further rails, claim words, parked words.
// The layout of the side file, version 1 of its own, and the data-path operations on it.
//
// A claim word says who may still move a piece: the sender offers it, and then either the relay
// takes it, before its first post, or the sender revokes it and sends it direct at once. Exactly
// one of the two wins. A relay without a side file is a version-1 process: its sender must treat
// every piece whose doorbell was issued as taken.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "transport/ring/control_block.h"

namespace railhop {

inline constexpr uint64_t kSideMagic = 0x3145444953'4852;  // "RHSIDE1"
inline constexpr uint32_t kSideVersion = 1;
inline constexpr uint32_t kMaxRails = 16;

// Reactors of the owner that poll shared memory, and that its peers may have to wake.
enum class WakeRole : uint8_t {
  kRelay = 0,       // polls the doorbells of inbound lanes
  kCompletion = 1,  // polls the completion rings of outbound lanes
};
inline constexpr uint32_t kWakeRoles = 2;

struct SideRail {
  uint32_t bytes;  // 1..256
  uint32_t reserved;
  char name[kMaxRailBytes];  // rest 0
};

struct SideHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t header_bytes;
  uint64_t file_bytes;
  ProcessIdentity owner;
  uint64_t epoch;         // of the owner's registration
  uint64_t capabilities;  // one bit each; none is defined yet, readers ignore unknown ones
  uint32_t rail_count;    // 1..16
  uint32_t reserved;
  SideRail rails[kMaxRails];
};

struct alignas(64) ParkedWord {
  uint32_t parked;  // 0 awake, 1 parked; owner writes
  uint8_t padding[60];
};

struct alignas(64) SideLane {
  uint64_t sender_epoch;  // of the claim that the words belong to; claimer, under the entry lock
  uint64_t claim_count;   // grows by 1 with each fresh claim; claimer, under the entry lock
  uint8_t padding[48];
  uint64_t claims[kSlotsPerLane];  // sequence << 2 | ClaimState
  uint8_t tail[48];
};

struct SideFile {
  SideHeader header;
  ParkedWord parked[kWakeRoles];
  SideLane lanes[kLaneCount];
};

enum class ClaimState : uint64_t { kNone = 0, kOffered = 1, kTaken = 2, kRevoked = 3 };

constexpr uint64_t ClaimWord(uint64_t sequence, ClaimState state) {
  return sequence << 2 | static_cast<uint64_t>(state);
}

// Sender, before commit_sequence.
inline void OfferPiece(SideLane& lane, uint64_t sequence) {
  StoreRelease(lane.claims[SlotIndex(sequence)], ClaimWord(sequence, ClaimState::kOffered));
}

enum class TakeResult : uint8_t {
  kTaken,
  kRevoked,  // complete it with an error, post nothing
  kForeign,  // the words are not this sender's (version 1): the piece counts as taken
};

// Relay, before its first post of the piece. `sender_epoch` as it stands in the lane's header.
inline TakeResult TakePiece(SideLane& lane, uint64_t sender_epoch, uint64_t sequence) {
  if (LoadAcquire(lane.sender_epoch) != sender_epoch) return TakeResult::kForeign;
  uint64_t word = ClaimWord(sequence, ClaimState::kOffered);
  std::atomic_ref<uint64_t> claim(lane.claims[SlotIndex(sequence)]);
  if (claim.compare_exchange_strong(word, ClaimWord(sequence, ClaimState::kTaken),
                                    std::memory_order_acq_rel, std::memory_order_acquire)) {
    return TakeResult::kTaken;
  }
  return word == ClaimWord(sequence, ClaimState::kRevoked) ? TakeResult::kRevoked
                                                           : TakeResult::kForeign;
}

// Sender, at a deadline or cancel. True: the relay will not send it. False: it was taken, and its
// completion or the relay's death must be waited for.
inline bool RevokePiece(SideLane& lane, uint64_t sequence) {
  uint64_t word = ClaimWord(sequence, ClaimState::kOffered);
  return std::atomic_ref<uint64_t>(lane.claims[SlotIndex(sequence)])
      .compare_exchange_strong(word, ClaimWord(sequence, ClaimState::kRevoked),
                               std::memory_order_acq_rel, std::memory_order_acquire);
}

static_assert(sizeof(SideRail) == 264);
static_assert(sizeof(SideHeader) == 4288 && offsetof(SideHeader, rails) == 64);
static_assert(offsetof(SideHeader, magic) == 0);
static_assert(offsetof(SideHeader, version) == 8);
static_assert(offsetof(SideHeader, header_bytes) == 12);
static_assert(offsetof(SideHeader, file_bytes) == 16);
static_assert(offsetof(SideHeader, owner) == 24);
static_assert(offsetof(SideHeader, epoch) == 40);
static_assert(offsetof(SideHeader, capabilities) == 48);
static_assert(offsetof(SideHeader, rail_count) == 56);
static_assert(offsetof(SideHeader, reserved) == 60);
static_assert(offsetof(SideFile, parked) == 4288 && sizeof(ParkedWord) == 64);
static_assert(offsetof(SideFile, lanes) == 4416 && sizeof(SideLane) == 256);
static_assert(offsetof(SideLane, sender_epoch) == 0 && offsetof(SideLane, claim_count) == 8);
static_assert(offsetof(SideLane, claims) == 64);
static_assert(sizeof(SideFile) == 6208);
static_assert(std::is_standard_layout_v<SideFile> && std::is_trivial_v<SideFile>);

}  // namespace railhop
