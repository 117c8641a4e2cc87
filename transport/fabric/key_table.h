// The registrations that requests are checked against: a key names a slot, the slot a range.
//
// Lies in zeroed memory, the owner's own or shared with other processes. One owner thread (control)
// adds and removes; any number of users, in any process, look up at the moment they move bytes.
//
//   user                                   owner, Remove
//   key matches; ++users                   key = 0
//   key still matches? (seq_cst)           users == 0? (seq_cst)
//   move bytes; --users                    yes: nothing can touch the range any more
//
// Of the two either the user sees the key gone or the owner sees the user.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/fence.h"

namespace railhop {

class KeyTable {
 public:
  static constexpr uint32_t kCapacity = 4096;
  // `memory` of a range that lies in no shared memory, and on no GPU.
  static constexpr uint32_t kNoMemory = UINT32_MAX;

  struct Entry {
    std::atomic<uint32_t> key;    // 0: free
    std::atomic<uint32_t> users;  // requests at work on the range
    std::atomic<uint64_t> address;
    std::atomic<uint64_t> length;
    uint32_t memory;  // which of the owner's shared memories it lies in, or which of its GPUs
    uint8_t padding[36];
  };

  KeyTable() = default;  // in zeroed memory
  KeyTable(const KeyTable&) = delete;
  KeyTable& operator=(const KeyTable&) = delete;

  // Owner. The key is random: one that was removed is not likely ever to be valid again, and never
  // is the next one of its slot.
  absl::StatusOr<uint32_t> Add(uint64_t address, uint64_t length, uint32_t memory);
  // Owner. From its start no new use succeeds; it returns when the last one has ended. NotFound: no
  // such key. DeadlineExceeded: a user was still at work, and may yet be.
  absl::Status Remove(uint32_t key, std::chrono::milliseconds timeout);

  // User. The entry, held against removal, if `key` is valid and the range lies inside what it
  // names; else nullptr.
  Entry* Acquire(uint32_t key, uint64_t address, uint64_t length);
  // User. The same question without holding anything: for requests that touch no byte.
  bool Covers(uint32_t key, uint64_t address, uint64_t length) const;
  static void Release(Entry* entry) {
    // Owner and user may have mapped the table at two addresses of one process; to ThreadSanitizer
    // these are unrelated words. The fence it understands (Remove has its partner).
    FullFence();
    entry->users.fetch_sub(1, std::memory_order_release);
  }

 private:
  static constexpr uint32_t kIndexMask = kCapacity - 1;

  static bool IsInside(const Entry& entry, uint64_t address, uint64_t length);

  std::array<Entry, kCapacity> entries_;
};

static_assert(sizeof(KeyTable::Entry) == 64);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

}  // namespace railhop
