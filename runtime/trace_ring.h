// TraceRing: the latest records of one writer, for whoever looks.
//
// The newest record takes the place of the oldest, so the writer never waits, never fails, and
// never reads what the reader writes: a record costs it as many plain stores as it has words, and
// one more.
//
// Threads: one writer for life; one reader at a time, from any thread, while the writer goes on.
// Guarantee: Take hands out whole records in the order of writing, each once. Those that were
// overwritten before they were read are counted, and so is the one whose place is just being
// written.
//
// How a torn record is noticed: each word is stored with release after the position of the record
// before it was published. A reader that saw one word of a later record therefore finds, when it
// looks at the position once more, that its own record is out of reach.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace railhop {

template <class T>
class TraceRing {
 public:
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(uint64_t) == 0);

  // `capacity` is rounded up to a power of two; all but one of the records can be read.
  explicit TraceRing(size_t capacity)
      : mask_(std::bit_ceil(capacity < 2 ? size_t{2} : capacity) - 1),
        cells_(std::make_unique<Cell[]>(mask_ + 1)) {}
  TraceRing(const TraceRing&) = delete;
  TraceRing& operator=(const TraceRing&) = delete;

  size_t capacity() const { return mask_ + 1; }

  // Writer.
  void Write(const T& record) {
    const uint64_t position = written_.load(std::memory_order_relaxed);
    const auto words = std::bit_cast<Words>(record);
    Cell& cell = cells_[position & mask_];
    for (size_t i = 0; i < kWords; ++i) cell[i].store(words[i], std::memory_order_release);
    written_.store(position + 1, std::memory_order_release);
  }

  // Reader. Calls visit(record) for each record since the last Take, and returns how many were
  // lost since then.
  template <class Visit>
  uint64_t Take(Visit visit) {
    const uint64_t written = written_.load(std::memory_order_acquire);
    uint64_t lost = written - taken_ > mask_ ? written - taken_ - mask_ : 0;
    for (taken_ += lost; taken_ != written; ++taken_) {
      const Cell& cell = cells_[taken_ & mask_];
      Words words;
      for (size_t i = 0; i < kWords; ++i) words[i] = cell[i].load(std::memory_order_acquire);
      if (written_.load(std::memory_order_relaxed) - taken_ > mask_) {
        ++lost;
      } else {
        visit(std::bit_cast<T>(words));
      }
    }
    return lost;
  }

 private:
  static constexpr size_t kWords = sizeof(T) / sizeof(uint64_t);
  using Words = std::array<uint64_t, kWords>;
  using Cell = std::array<std::atomic<uint64_t>, kWords>;

  const size_t mask_;
  const std::unique_ptr<Cell[]> cells_;
  std::atomic<uint64_t> written_{0};  // positions below it are written
  uint64_t taken_ = 0;                // the reader's: positions below it were read or lost
};

}  // namespace railhop
