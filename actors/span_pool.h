// Spans, the contiguous parts of requests, and the queues that they wait in.
//
// Pure logic, one owner (SubmitActor), no allocation after construction. All inline: a span that
// goes through memory on its way into a queue is read back in wider pieces than it was written in,
// and such a read waits for every store before it, those to lines of another core included.
#pragma once

#include <cassert>
#include <cstdint>
#include <vector>

#include "actors/region_table.h"

namespace railhop {

inline constexpr uint32_t kNoSpan = UINT32_MAX;

// A contiguous part of one request.
struct Span {
  std::byte* source = nullptr;
  uint64_t destination = 0;  // address in the target
  uint64_t length = 0;
  Region* region = nullptr;  // that the source lies in; its in_flight counts these bytes
  uint32_t batch = 0;        // index in the RequestTable
  uint32_t request = 0;      // of the batch
  bool is_read = false;
};

// FIFO of spans; the nodes live in a SpanPool.
struct SpanQueue {
  uint32_t head = kNoSpan;
  uint32_t tail = kNoSpan;
  uint32_t count = 0;
  uint64_t bytes = 0;
  bool empty() const { return count == 0; }
};

class SpanPool {
 public:
  explicit SpanPool(uint32_t capacity) : nodes_(capacity), available_(capacity) {
    for (uint32_t i = capacity; i-- > 0;) {
      nodes_[i].next = first_free_;
      first_free_ = i;
    }
  }

  uint32_t available() const { return available_; }
  // False when the pool is used up.
  bool Push(SpanQueue& queue, const Span& span) {
    if (available_ == 0) return false;
    const uint32_t node = first_free_;
    first_free_ = nodes_[node].next;
    --available_;
    nodes_[node].span = span;
    Attach(queue, node);
    return true;
  }
  Span& Front(SpanQueue& queue) { return nodes_[queue.head].span; }
  void PopFront(SpanQueue& queue) { Release(Detach(queue)); }
  // Takes `bytes` off the front span, which keeps the rest.
  void ShortenFront(SpanQueue& queue, uint64_t bytes) {
    Span& span = Front(queue);
    assert(bytes < span.length);
    span.source += bytes;
    span.destination += bytes;
    span.length -= bytes;
    queue.bytes -= bytes;
  }
  // Removes every span that `drop(span)` says true for, keeping the order of the others.
  template <class Drop>
  void RemoveIf(SpanQueue& queue, Drop drop) {
    SpanQueue kept;
    while (!queue.empty()) {
      const uint32_t node = Detach(queue);
      if (drop(nodes_[node].span)) {
        Release(node);
      } else {
        Attach(kept, node);
      }
    }
    queue = kept;
  }

 private:
  struct Node {
    Span span;
    uint32_t next = kNoSpan;
  };

  uint32_t Detach(SpanQueue& queue) {
    assert(!queue.empty());
    const uint32_t node = queue.head;
    queue.head = nodes_[node].next;
    --queue.count;
    queue.bytes -= nodes_[node].span.length;
    if (queue.empty()) queue.tail = kNoSpan;
    return node;
  }
  void Attach(SpanQueue& queue, uint32_t node) {
    nodes_[node].next = kNoSpan;
    (queue.empty() ? queue.head : nodes_[queue.tail].next) = node;
    queue.tail = node;
    ++queue.count;
    queue.bytes += nodes_[node].span.length;
  }
  void Release(uint32_t node) {
    nodes_[node].next = first_free_;
    first_free_ = node;
    ++available_;
  }

  std::vector<Node> nodes_;
  uint32_t first_free_ = kNoSpan;
  uint32_t available_;
};

}  // namespace railhop
