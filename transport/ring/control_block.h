// The shared-memory block that one process publishes and its peers map: a registry header and seven
// inbound lanes. Frozen at ABI version 1: every number below is one that other builds and other
// implementations rely on, and is pinned by a static_assert.
//
// Little-endian, natural alignment. Words that two processes share are accessed only through
// LoadAcquire and its sisters; who writes which, and in which order, is the table of docs/ring.md.
// Memory: the block lives in a file of the registry (registry.h) and is zero when it is made.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "transport/ring/process_identity.h"

namespace railhop {

inline constexpr uint32_t kLaneCount = 7;  // inbound lanes: a group has at most 8 processes
inline constexpr uint32_t kSlotsPerLane = 18;
inline constexpr uint64_t kSlotBytes = 8'388'608;
inline constexpr uint64_t kArenaBytes = kLaneCount * kSlotsPerLane * kSlotBytes;
inline constexpr uint32_t kMaxPlanEntries = 4096;
inline constexpr uint32_t kMaxSessionBytes = 256;
inline constexpr uint32_t kMaxRailBytes = 256;
inline constexpr uint32_t kArenaHandleBytes = 64;
inline constexpr uint64_t kRegistryMagic = 0x4D4350584E524547;
inline constexpr uint32_t kAbiVersion = 1;

enum class RegistryState : uint32_t { kInitializing = 0, kReady = 1, kStopping = 2 };
enum class LaneState : uint32_t { kFree = 0, kClaiming = 1, kReady = 2 };

struct RegistryHeader {
  uint64_t magic;
  uint32_t abi_version;
  uint32_t header_bytes;
  uint64_t mapping_bytes;
  uint32_t state;  // RegistryState; acquire/release
  uint32_t rail_bytes;
  ProcessIdentity owner;
  uint64_t epoch;      // random, non-zero; new for each registration
  uint64_t heartbeat;  // 0 for ever in a version-1 process
  uint32_t lane_count;
  uint32_t slots_per_lane;
  uint64_t slot_size;
  uint64_t arena_size;
  uint32_t ipc_handle_bytes;
  uint32_t reserved;
  char rail[kMaxRailBytes];  // rail_bytes long, rest 0
  uint8_t arena_handle[kArenaHandleBytes];
  uint8_t padding[32];  // 0, or a version-1 reader refuses the entry
};

struct LaneHeader {
  uint32_t state;           // LaneState; claimer, under the entry lock
  uint32_t arena_attached;  // claimer, under the entry lock
  ProcessIdentity sender;
  uint64_t sender_epoch;
  uint64_t head;       // sender: highest published sequence
  uint64_t doorbell;   // sender, CPU or GPU: highest sequence whose bytes are in the slot
  uint64_t completed;  // relay: highest sequence completed, in order
  uint64_t padding;
};

struct PlanEntry {
  uint64_t final_destination;
  uint64_t length;
  friend bool operator==(const PlanEntry&, const PlanEntry&) = default;
};

struct Descriptor {
  uint64_t commit_sequence;  // release-stored last; the validity mark
  uint64_t epoch;            // of the relay's registration
  uint32_t piece_length;
  uint32_t plan_count;
  uint32_t session_length;
  uint32_t reserved;
  char session[kMaxSessionBytes];
  PlanEntry plans[kMaxPlanEntries];
  uint8_t padding[32];
};

struct Completion {
  uint64_t commit_sequence;  // release-stored last
  int32_t status;            // 0 success, negative = error
  uint32_t reserved;
  uint8_t padding[48];
};

struct alignas(64) LaneControl {
  LaneHeader header;
  Descriptor descriptors[kSlotsPerLane];
  Completion completions[kSlotsPerLane];
};

struct alignas(64) ControlBlock {
  RegistryHeader header;
  LaneControl lanes[kLaneCount];
};

// slot_index(sequence); sequence 0 is never valid.
constexpr uint32_t SlotIndex(uint64_t sequence) {
  return static_cast<uint32_t>((sequence - 1) % kSlotsPerLane);
}
// Bytes from the arena's base to a slot.
constexpr uint64_t SlotOffset(uint32_t lane, uint32_t slot) {
  return (uint64_t{lane} * kSlotsPerLane + slot) * kSlotBytes;
}

// Shared words. A const word may belong to a mapping that another process writes.
template <typename T>
T LoadAcquire(const T& word) {
  return std::atomic_ref<T>(const_cast<T&>(word)).load(std::memory_order_acquire);
}
template <typename T>
T LoadRelaxed(const T& word) {
  return std::atomic_ref<T>(const_cast<T&>(word)).load(std::memory_order_relaxed);
}
template <typename T>
void StoreRelease(T& word, std::type_identity_t<T> value) {
  std::atomic_ref<T>(word).store(value, std::memory_order_release);
}
template <typename T>
void StoreRelaxed(T& word, std::type_identity_t<T> value) {
  std::atomic_ref<T>(word).store(value, std::memory_order_relaxed);
}

inline LaneState LoadLaneState(const LaneHeader& header) {
  return static_cast<LaneState>(LoadAcquire(header.state));
}
inline void StoreLaneState(LaneHeader& header, LaneState state) {
  StoreRelease(header.state, static_cast<uint32_t>(state));
}

static_assert(std::endian::native == std::endian::little);
static_assert(std::atomic_ref<uint32_t>::is_always_lock_free);
static_assert(std::atomic_ref<uint64_t>::is_always_lock_free);
static_assert(kArenaBytes == 1'056'964'608);
static_assert(SlotIndex(1) == 0 && SlotIndex(18) == 17 && SlotIndex(19) == 0);
static_assert(SlotOffset(6, 17) + kSlotBytes == kArenaBytes);

static_assert(sizeof(ProcessIdentity) == 16);
static_assert(offsetof(ProcessIdentity, uid) == 0);
static_assert(offsetof(ProcessIdentity, pid) == 4);
static_assert(offsetof(ProcessIdentity, start_ticks) == 8);

static_assert(std::is_standard_layout_v<ControlBlock> && std::is_trivial_v<ControlBlock>);
static_assert(sizeof(RegistryHeader) == 448);
static_assert(offsetof(RegistryHeader, magic) == 0);
static_assert(offsetof(RegistryHeader, abi_version) == 8);
static_assert(offsetof(RegistryHeader, header_bytes) == 12);
static_assert(offsetof(RegistryHeader, mapping_bytes) == 16);
static_assert(offsetof(RegistryHeader, state) == 24);
static_assert(offsetof(RegistryHeader, rail_bytes) == 28);
static_assert(offsetof(RegistryHeader, owner) == 32);
static_assert(offsetof(RegistryHeader, epoch) == 48);
static_assert(offsetof(RegistryHeader, heartbeat) == 56);
static_assert(offsetof(RegistryHeader, lane_count) == 64);
static_assert(offsetof(RegistryHeader, slots_per_lane) == 68);
static_assert(offsetof(RegistryHeader, slot_size) == 72);
static_assert(offsetof(RegistryHeader, arena_size) == 80);
static_assert(offsetof(RegistryHeader, ipc_handle_bytes) == 88);
static_assert(offsetof(RegistryHeader, reserved) == 92);
static_assert(offsetof(RegistryHeader, rail) == 96);
static_assert(offsetof(RegistryHeader, arena_handle) == 352);
static_assert(offsetof(RegistryHeader, padding) == 416);

static_assert(sizeof(LaneHeader) == 64);
static_assert(offsetof(LaneHeader, state) == 0);
static_assert(offsetof(LaneHeader, arena_attached) == 4);
static_assert(offsetof(LaneHeader, sender) == 8);
static_assert(offsetof(LaneHeader, sender_epoch) == 24);
static_assert(offsetof(LaneHeader, head) == 32);
static_assert(offsetof(LaneHeader, doorbell) == 40);
static_assert(offsetof(LaneHeader, completed) == 48);
static_assert(offsetof(LaneHeader, padding) == 56);

static_assert(sizeof(PlanEntry) == 16);
static_assert(offsetof(PlanEntry, final_destination) == 0);
static_assert(offsetof(PlanEntry, length) == 8);

static_assert(sizeof(Descriptor) == 65'856);
static_assert(offsetof(Descriptor, commit_sequence) == 0);
static_assert(offsetof(Descriptor, epoch) == 8);
static_assert(offsetof(Descriptor, piece_length) == 16);
static_assert(offsetof(Descriptor, plan_count) == 20);
static_assert(offsetof(Descriptor, session_length) == 24);
static_assert(offsetof(Descriptor, reserved) == 28);
static_assert(offsetof(Descriptor, session) == 32);
static_assert(offsetof(Descriptor, plans) == 288);
static_assert(offsetof(Descriptor, padding) == 65'824);

static_assert(sizeof(Completion) == 64);
static_assert(offsetof(Completion, commit_sequence) == 0);
static_assert(offsetof(Completion, status) == 8);
static_assert(offsetof(Completion, reserved) == 12);
static_assert(offsetof(Completion, padding) == 16);

static_assert(sizeof(LaneControl) == 1'186'624 && alignof(LaneControl) == 64);
static_assert(offsetof(LaneControl, header) == 0);
static_assert(offsetof(LaneControl, descriptors) == 64);
static_assert(offsetof(LaneControl, completions) == 1'185'472);

static_assert(sizeof(ControlBlock) == 8'306'816 && alignof(ControlBlock) == 64);
static_assert(offsetof(ControlBlock, header) == 0);
static_assert(offsetof(ControlBlock, lanes) == 448);

}  // namespace railhop
