#include "transport/fabric/key_table.h"

#include <fmt/format.h>

#include <random>
#include <thread>

namespace railhop {

absl::StatusOr<uint32_t> KeyTable::Add(uint64_t address, uint64_t length, uint32_t memory) {
  if (length == 0 || address + length < address) {
    return absl::InvalidArgumentError(
        fmt::format("cannot register {} bytes at {:#x}", length, address));
  }
  static thread_local std::mt19937 random{std::random_device{}()};
  // Starts anywhere, so that a slot is not used anew at once.
  const auto first = static_cast<uint32_t>(random());
  for (uint32_t i = 0; i < kCapacity; ++i) {
    const uint32_t index = (first + i) & kIndexMask;
    Entry& entry = entries_[index];
    // A slot with a user is one whose Remove gave up waiting.
    if (entry.key.load(std::memory_order_relaxed) != 0 ||
        entry.users.load(std::memory_order_acquire) != 0) {
      continue;
    }
    uint32_t key = 0;
    while (key <= kIndexMask) key = (static_cast<uint32_t>(random()) & ~kIndexMask) | index;
    entry.address.store(address, std::memory_order_release);
    entry.length.store(length, std::memory_order_release);
    entry.memory = memory;
    entry.key.store(key, std::memory_order_seq_cst);
    return key;
  }
  return absl::ResourceExhaustedError(
      fmt::format("all {} registrations of a key table are in use", kCapacity));
}

absl::Status KeyTable::Remove(uint32_t key, std::chrono::milliseconds timeout) {
  Entry& entry = entries_[key & kIndexMask];
  if (key == 0 || entry.key.load(std::memory_order_relaxed) != key) {
    return absl::NotFoundError(fmt::format("no registration with key {:#x}", key));
  }
  entry.key.store(0, std::memory_order_seq_cst);
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (entry.users.load(std::memory_order_seq_cst) != 0) {
    if (std::chrono::steady_clock::now() >= deadline) {
      return absl::DeadlineExceededError(
          fmt::format("registration {:#x} ({} bytes at {:#x}) is still being accessed; its memory "
                      "must not be used for anything else",
                      key, entry.length.load(), entry.address.load()));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  FullFence();
  return absl::OkStatus();
}

bool KeyTable::IsInside(const Entry& entry, uint64_t address, uint64_t length) {
  const uint64_t first = entry.address.load(std::memory_order_acquire);
  const uint64_t bytes = entry.length.load(std::memory_order_acquire);
  return address >= first && length <= bytes && address - first <= bytes - length;
}

// The key is read last, again: had the slot been given to another range meanwhile, it would differ.
bool KeyTable::Covers(uint32_t key, uint64_t address, uint64_t length) const {
  if (key == 0) return false;
  const Entry& entry = entries_[key & kIndexMask];
  return entry.key.load(std::memory_order_acquire) == key && IsInside(entry, address, length) &&
         entry.key.load(std::memory_order_relaxed) == key;
}

KeyTable::Entry* KeyTable::Acquire(uint32_t key, uint64_t address, uint64_t length) {
  if (key == 0) return nullptr;
  Entry& entry = entries_[key & kIndexMask];
  if (entry.key.load(std::memory_order_acquire) != key) return nullptr;
  entry.users.fetch_add(1, std::memory_order_seq_cst);
  if (entry.key.load(std::memory_order_seq_cst) == key && IsInside(entry, address, length)) {
    return &entry;
  }
  Release(&entry);
  return nullptr;
}

}  // namespace railhop
