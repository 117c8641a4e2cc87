// From requests to pieces: spans wait in queues, and pieces are cut off a queue when there is room
// for one in the ring - not before, so that a piece carries what has gathered meanwhile.
//
// A piece costs a fixed time however small it is (the issue of its copy alone 4 us through a GPU's
// copy engine), so it packs spans of several requests; when little waits pieces are no larger than
// that asks for, so that copy and send overlap. PieceTarget() is that rule. Pure logic, one owner,
// no allocation after construction.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "actors/region_table.h"
#include "transport/copy/copy_engine.h"
#include "transport/ring/control_block.h"

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
  explicit SpanPool(uint32_t capacity);

  uint32_t available() const { return available_; }
  // False when the pool is used up.
  bool Push(SpanQueue& queue, const Span& span);
  Span& Front(SpanQueue& queue) { return nodes_[queue.head].span; }
  void PopFront(SpanQueue& queue);
  // Takes `bytes` off the front span, which keeps the rest.
  void ShortenFront(SpanQueue& queue, uint64_t bytes);
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
  uint32_t Detach(SpanQueue& queue);
  void Attach(SpanQueue& queue, uint32_t node);
  void Release(uint32_t node);

  std::vector<Node> nodes_;
  uint32_t first_free_ = kNoSpan;
  uint32_t available_;
};

// What one ring slot carries: spans of one target, and the same as the copy engine and the
// descriptor want them. Nothing grows beyond kMaxPlanEntries, which is there from the start.
struct PieceContent {
  PieceContent();
  void Clear();
  bool full() const { return spans.size() == kMaxPlanEntries; }
  // Only if not full.
  void Append(const Span& span);

  std::vector<Span> spans;
  // These two run in parallel; spans that are neighbours at both ends, in one region, share an
  // entry.
  std::vector<CopySpan> copies;
  std::vector<PlanEntry> plans;
  uint64_t length = 0;
};

// Bytes that the next piece of a lane should carry: what the copy engine wants at least, or more
// when so much waits, or when the relay has so much in hand that the piece will not be waited for.
uint64_t PieceTarget(uint64_t bytes_waiting, uint64_t bytes_at_relay, const JobSizes& sizes,
                     uint64_t max_piece_bytes);

// Moves spans from the front of `queue` into `piece`, at most `max_bytes`; a span that does not fit
// is split. Returns false when the queue is empty.
bool CutPiece(SpanPool& pool, SpanQueue& queue, uint64_t max_bytes, PieceContent* piece);

}  // namespace railhop
