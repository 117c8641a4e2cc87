#include "actors/slicer.h"

#include <algorithm>
#include <cassert>

namespace railhop {

SpanPool::SpanPool(uint32_t capacity) : nodes_(capacity), available_(capacity) {
  for (uint32_t i = capacity; i-- > 0;) {
    nodes_[i].next = first_free_;
    first_free_ = i;
  }
}

uint32_t SpanPool::Detach(SpanQueue& queue) {
  assert(!queue.empty());
  const uint32_t node = queue.head;
  queue.head = nodes_[node].next;
  --queue.count;
  queue.bytes -= nodes_[node].span.length;
  if (queue.empty()) queue.tail = kNoSpan;
  return node;
}

void SpanPool::Attach(SpanQueue& queue, uint32_t node) {
  nodes_[node].next = kNoSpan;
  if (queue.empty()) {
    queue.head = node;
  } else {
    nodes_[queue.tail].next = node;
  }
  queue.tail = node;
  ++queue.count;
  queue.bytes += nodes_[node].span.length;
}

void SpanPool::Release(uint32_t node) {
  nodes_[node].next = first_free_;
  first_free_ = node;
  ++available_;
}

bool SpanPool::Push(SpanQueue& queue, const Span& span) {
  if (available_ == 0) return false;
  const uint32_t node = first_free_;
  first_free_ = nodes_[node].next;
  --available_;
  nodes_[node].span = span;
  Attach(queue, node);
  return true;
}

void SpanPool::PopFront(SpanQueue& queue) {
  Release(Detach(queue));
}

void SpanPool::ShortenFront(SpanQueue& queue, uint64_t bytes) {
  Span& span = Front(queue);
  assert(bytes < span.length);
  span.source += bytes;
  span.destination += bytes;
  span.length -= bytes;
  queue.bytes -= bytes;
}

PieceContent::PieceContent() {
  spans.reserve(kMaxPlanEntries);
  copies.reserve(kMaxPlanEntries);
  plans.reserve(kMaxPlanEntries);
}

void PieceContent::Clear() {
  spans.clear();
  copies.clear();
  plans.clear();
  length = 0;
}

void PieceContent::Append(const Span& span) {
  const bool continues = !spans.empty() && spans.back().region == span.region &&
                         spans.back().source + spans.back().length == span.source &&
                         spans.back().destination + spans.back().length == span.destination;
  if (continues) {
    copies.back().length += span.length;
    plans.back().length += span.length;
  } else {
    copies.push_back({span.source, span.length});
    plans.push_back({span.destination, span.length});
  }
  spans.push_back(span);
  length += span.length;
}

uint64_t PieceTarget(uint64_t bytes_waiting, uint64_t bytes_at_relay, const JobSizes& sizes,
                     uint64_t max_piece_bytes) {
  // An eighth of what waits: the first piece is a small part of it, and so is the last.
  const uint64_t share = std::min(bytes_waiting / 8, sizes.backlog);
  // A quarter of what the relay has: the copy is over before it is sent.
  const uint64_t target = std::clamp(std::max(share, bytes_at_relay / 4),
                                     std::min(sizes.idle, max_piece_bytes), max_piece_bytes);
  // The rest would not be worth a piece of its own.
  return bytes_waiting < 2 * target ? std::min(bytes_waiting, max_piece_bytes) : target;
}

bool CutPiece(SpanPool& pool, SpanQueue& queue, uint64_t max_bytes, PieceContent* piece) {
  piece->Clear();
  while (!queue.empty() && piece->length < max_bytes) {
    if (piece->full()) break;
    Span span = pool.Front(queue);
    const uint64_t room = max_bytes - piece->length;
    if (span.length > room) {
      span.length = room;
      pool.ShortenFront(queue, room);
    } else {
      pool.PopFront(queue);
    }
    piece->Append(span);
  }
  return piece->length != 0;
}

}  // namespace railhop
