// BatchList: a FIFO of batches, linked through the batches themselves.
//
// Pure logic, one owner (SubmitActor), no allocation. A batch is in at most one list.
#pragma once

#include <cstdint>

#include "actors/request_table.h"

namespace railhop {

class BatchList {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  explicit BatchList(RequestTable* table) : table_(table) {}

  bool empty() const { return first_ == kNone; }
  uint32_t last() const { return last_; }

  void PushBack(uint32_t index) {
    Links(index).next_active = kNone;
    Links(index).previous_active = last_;
    (last_ == kNone ? first_ : Links(last_).next_active) = index;
    last_ = index;
  }

  uint32_t PopFront() {
    const uint32_t index = first_;
    Remove(index);
    return index;
  }

  // Nothing happens if the batch is not in a list.
  void Remove(uint32_t index) {
    Batch::Progress& links = Links(index);
    if (first_ != index && links.previous_active == kNone) return;
    (first_ == index ? first_ : Links(links.previous_active).next_active) = links.next_active;
    (last_ == index ? last_ : Links(links.next_active).previous_active) = links.previous_active;
    links.next_active = links.previous_active = kNone;
  }

  // Moves all of `other` behind the batches of this one.
  void Append(BatchList& other) {
    if (other.empty()) return;
    Links(other.first_).previous_active = last_;
    (last_ == kNone ? first_ : Links(last_).next_active) = other.first_;
    last_ = other.last_;
    other.first_ = other.last_ = kNone;
  }

 private:
  Batch::Progress& Links(uint32_t index) const { return table_->at(index).progress; }

  RequestTable* table_;
  uint32_t first_ = kNone;
  uint32_t last_ = kNone;
};

}  // namespace railhop
