// A fixed pool of objects that are passed around by handle.
//
// A handle is (index, generation): giving an object back ends its generation, so a stale handle is
// recognised instead of reaching the next owner's object. The objects are constructed once, with
// the slab, and keep their storage between uses: vectors inside keep their capacity, and whoever
// allocates an object sees what the last user left in it.
//
// Threads: one owner; a handle may travel in messages, Allocate, Get and Free stay with the owner.
// Nothing is allocated after construction.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace railhop {

struct SlabHandle {
  uint32_t index = 0;
  uint32_t generation = 0;  // 0: no object

  constexpr bool valid() const { return generation != 0; }
  // The handle as one word, for the user_data of a work request; 0 is no object.
  constexpr uint64_t ToWord() const { return uint64_t{generation} << 32 | index; }
  static constexpr SlabHandle FromWord(uint64_t word) {
    return {.index = static_cast<uint32_t>(word), .generation = static_cast<uint32_t>(word >> 32)};
  }
  friend constexpr bool operator==(const SlabHandle&, const SlabHandle&) = default;
};

template <class T>
class Slab {
 public:
  explicit Slab(uint32_t capacity)
      : capacity_(capacity), cells_(std::make_unique<Cell[]>(capacity)) {
    assert(capacity < kInUse);
    for (uint32_t i = capacity; i-- > 0;) {
      cells_[i].next_free = first_free_;
      first_free_ = i;
    }
  }
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  // An invalid handle when all objects are in use. The latest freed object comes first: it is the
  // one that is still in the cache.
  SlabHandle Allocate() {
    if (first_free_ == kNone) return {};
    const uint32_t index = first_free_;
    Cell& cell = cells_[index];
    first_free_ = cell.next_free;
    cell.next_free = kInUse;
    ++in_use_;
    return {.index = index, .generation = cell.generation};
  }

  // nullptr for a handle that is invalid, stale or not of this slab.
  T* Get(SlabHandle handle) {
    Cell* const cell = Find(handle);
    return cell == nullptr ? nullptr : &cell->object;
  }
  const T* Get(SlabHandle handle) const { return const_cast<Slab*>(this)->Get(handle); }

  // False, and nothing happens, for a handle that Get refuses.
  bool Free(SlabHandle handle) {
    Cell* const cell = Find(handle);
    if (cell == nullptr) return false;
    if (++cell->generation == 0) cell->generation = 1;
    cell->next_free = first_free_;
    first_free_ = handle.index;
    --in_use_;
    return true;
  }

  // Calls visit(handle, object) for each object in use; `visit` may free the one it is shown.
  template <class Visit>
  void ForEach(Visit visit) {
    for (uint32_t i = 0; i < capacity_; ++i) {
      Cell& cell = cells_[i];
      if (cell.next_free != kInUse) continue;
      visit(SlabHandle{.index = i, .generation = cell.generation}, cell.object);
    }
  }

  uint32_t capacity() const { return capacity_; }
  uint32_t in_use() const { return in_use_; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;       // end of the free list
  static constexpr uint32_t kInUse = UINT32_MAX - 1;  // in place of a free-list link

  struct Cell {
    T object{};
    uint32_t generation = 1;
    uint32_t next_free = kNone;
  };

  Cell* Find(SlabHandle handle) {
    if (handle.index >= capacity_) return nullptr;
    Cell& cell = cells_[handle.index];
    return cell.next_free == kInUse && cell.generation == handle.generation ? &cell : nullptr;
  }

  const uint32_t capacity_;
  std::unique_ptr<Cell[]> cells_;
  uint32_t first_free_ = kNone;
  uint32_t in_use_ = 0;
};

}  // namespace railhop
