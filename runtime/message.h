// What travels between actors: a trivially copyable value of at most 56 bytes in a 64-byte cell.
//
// The cell holds the value and, beside it, the word that publishes it, so a hop between two cores
// moves one cache line (measured: 1.1 spin-flag round trips, where a ring with separate indices
// takes 1.65 to 1.8).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>

namespace railhop {

inline constexpr size_t kCacheLine = 64;
// How far apart words lie that different threads write: two lines, because processors fetch lines
// in pairs (Intel's spatial prefetcher; measured: docs/performance.md, "What was tried").
inline constexpr size_t kNoFalseSharing = 2 * kCacheLine;
inline constexpr size_t kMaxMessageBytes = 56;

template <class T>
concept Message = std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T> &&
                      sizeof(T) <= kMaxMessageBytes
                  && alignof(T) <= 8;

struct alignas(kCacheLine) MessageCell {
  std::atomic<uint64_t> sequence{0};  // position + 1 once the value of that position is in place
  alignas(8) std::byte payload[kMaxMessageBytes];

  template <Message T>
  void Store(const T& value) {
    ::new (static_cast<void*>(payload)) T(value);
  }
  template <Message T>
  const T& Load() const {
    return *std::launder(reinterpret_cast<const T*>(payload));
  }
};
static_assert(sizeof(MessageCell) == kCacheLine);

// Rounds a wished capacity up to the power of two that the rings index with; at least 2.
constexpr size_t RingCapacity(size_t wish) {
  size_t capacity = 2;
  while (capacity < wish) capacity *= 2;
  return capacity;
}

// A consumer tells its producers how far it has read every so many cells, not at each.
constexpr size_t CreditInterval(size_t capacity) {
  return capacity / 2 < 16 ? capacity / 2 : 16;
}

// The capacity of an edge that is never found full although its producer sends again for each
// message whose handling it heard of, as long as at most `window` are in flight: room for those,
// and for what the consumer has taken without saying so.
constexpr size_t CapacityForWindow(size_t window) {
  size_t capacity = 2;
  while (capacity < window + CreditInterval(capacity)) capacity *= 2;
  return capacity;
}

}  // namespace railhop
